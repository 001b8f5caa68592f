/* An MPI program that knows nothing of netsum: sums of types and operations, compared with what they must be. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N 5000
#define EXPECT(condition) if (!(condition)) { printf("wrong: %s\n", #condition); MPI_Abort(MPI_COMM_WORLD, 3); }

int main(int argc, char **argv) {
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  static double given[N], sum[N];
  static float narrow[N];
  static int whole[N], largest[N];
  for (int step = 0; step < 20; step++) {
    for (int i = 0; i < N; i++) {
      given[i] = rank == 0 ? 1e16 : rank == 1 ? 1 + i : -1e16 / (size > 2 ? 1 : 1e16);
      narrow[i] = i * 0.5f + rank;
      whole[i] = i * (rank + 1) - step;
    }
    MPI_Allreduce(given, sum, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, narrow, N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(whole, largest, N, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    for (int i = 0; i < N; i++) {
      if (size == 3) EXPECT(sum[i] == 1 + i); /* Rounded once: MPI loses some of it. */
      EXPECT(narrow[i] == i * 0.5f * size + size * (size - 1) / 2);
      EXPECT(largest[i] == i * size - step);
    }
  }
  long product = rank + 1, factorial = 1;
  MPI_Allreduce(MPI_IN_PLACE, &product, 1, MPI_LONG, MPI_PROD, MPI_COMM_WORLD);
  for (int each = 2; each <= size; each++) factorial *= each;
  EXPECT(product == factorial);
  struct { double value; int rank; } mine = {-rank, rank}, least;
  MPI_Allreduce(&mine, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD);
  EXPECT(least.rank == size - 1);
  MPI_Comm half;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  int members = 1;
  MPI_Allreduce(MPI_IN_PLACE, &members, 1, MPI_INT, MPI_SUM, half);
  EXPECT(members == (size + 1 - rank % 2) / 2);
  MPI_Allreduce(given, sum, 0, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  if (argc > 1 && rank == size - 1) _Exit(0);
  MPI_Allreduce(given, sum, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  printf("done\n");
  return MPI_Finalize();
}
