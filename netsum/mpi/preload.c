/* MPI_Allreduce of a program that knows nothing of netsum, by LD_PRELOAD; preload.py is the other half. */
#include <Python.h>
#include <mpi.h>

static PyObject *half;
static _Thread_local int inside; /* netsum's own calls of MPI are MPI's. */

static void start(void) {
  PyConfig config;
  PyConfig_InitPythonConfig(&config);
  config.install_signal_handlers = 0;
  PyConfig_SetBytesString(&config, &config.program_name, PYTHON); /* Its environment has the packages. */
  if (!PyStatus_Exception(Py_InitializeFromConfig(&config))) {
    half = PyImport_ImportModule("netsum.mpi.preload");
    if (!half) PyErr_Print();
  }
  if (!half) PMPI_Abort(MPI_COMM_WORLD, 1);
  PyEval_SaveThread();
}

int MPI_Allreduce(const void *send, void *received, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  if (inside || comm != MPI_COMM_WORLD) return PMPI_Allreduce(send, received, count, type, op, comm);
  inside = 1;
  if (!half) start();
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject *done = PyObject_CallMethod(half, "allreduce", "KKiii", send == MPI_IN_PLACE ? NULL : send, received, count,
                                       MPI_Type_c2f(type), MPI_Op_c2f(op));
  if (!done) {
    PyErr_Print();
    PMPI_Abort(MPI_COMM_WORLD, 1);
  }
  int taken = PyObject_IsTrue(done);
  Py_XDECREF(done);
  PyGILState_Release(state);
  inside = 0;
  return taken ? MPI_SUCCESS : PMPI_Allreduce(send, received, count, type, op, comm);
}

int MPI_Finalize(void) {
  if (half) {
    PyGILState_STATE state = PyGILState_Ensure();
    Py_XDECREF(PyObject_CallMethod(half, "close", NULL));
    PyGILState_Release(state);
  }
  return PMPI_Finalize();
}
