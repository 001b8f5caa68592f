; A host's end of a cable in `python -m tests.veth`. It makes a frame of a test run, which seems to come from the loopback interface,
; a worker's next contribution and sends it; it counts RESULTs that arrive, and drops them. It is one program since test runs of a
; program that is at no interface wait for RCU twice (28 ms). Words in capitals are replaced by numbers before it is compiled.
;
; memory: the next chunk, the RESULTs, the sum of their chunks, when the last of all came (ns), how many are all; at 64: 16
; templates of frames, taken in turn; at SAMPLES: each 61st RESULT, 64 of them.

@map.memory = external global i8
@map.cable = external global i8

declare i64 @helper.5()
declare i64 @helper.51(ptr, i64, i64)
declare i64 @helper.189(ptr, i64, ptr, i64)
declare i64 @helper.190(ptr, i64, ptr, i64)
declare i32 @llvm.bswap.i32(i32)
declare i16 @llvm.bswap.i16(i16)

define i32 @host(ptr %xdp) {
  %interface_at = getelementptr i8, ptr %xdp, i64 12
  %interface = load i32, ptr %interface_at
  %is_loopback = icmp eq i32 %interface, 1
  br i1 %is_loopback, label %send, label %receive

send:
  %chunk = load i64, ptr @map.memory
  %next = add i64 %chunk, 1
  store i64 %next, ptr @map.memory
  %turn = and i64 %chunk, 15
  %row = mul i64 %turn, STRIDE
  %templates = getelementptr i8, ptr @map.memory, i64 64
  %frame = getelementptr i8, ptr %templates, i64 %row
  %slot = and i64 %chunk, SLOTMASK
  %round = lshr i64 %chunk, SHIFT
  %version = and i64 %round, 1
  %twice = shl i64 %slot, 1
  %pool = or i64 %twice, %version
  %pool16 = trunc i64 %pool to i16
  %pool_on_wire = call i16 @llvm.bswap.i16(i16 %pool16)
  %pool_at = getelementptr i8, ptr %frame, i64 POOLAT
  store i16 %pool_on_wire, ptr %pool_at
  %chunk32 = trunc i64 %chunk to i32
  %chunk_on_wire = call i32 @llvm.bswap.i32(i32 %chunk32)
  %chunk_at = getelementptr i8, ptr %frame, i64 CHUNKAT
  store i32 %chunk_on_wire, ptr %chunk_at, align 2
  %not_stored = call i64 @helper.190(ptr %xdp, i64 0, ptr %frame, i64 FRAME)
  %action = call i64 @helper.51(ptr @map.cable, i64 0, i64 0)
  %result = trunc i64 %action to i32
  ret i32 %result

receive:
  %data32 = load i32, ptr %xdp
  %data64 = zext i32 %data32 to i64
  %data = inttoptr i64 %data64 to ptr
  %end_at = getelementptr i8, ptr %xdp, i64 4
  %end32 = load i32, ptr %end_at
  %end64 = zext i32 %end32 to i64
  %end = inttoptr i64 %end64 to ptr
  %least = getelementptr i8, ptr %data, i64 FRAME
  %short = icmp ugt ptr %least, %end
  br i1 %short, label %other, label %whole

whole:
  %kind_at = getelementptr i8, ptr %data, i64 42
  %kind = load i8, ptr %kind_at
  %is_result = icmp eq i8 %kind, RESULT
  br i1 %is_result, label %count, label %other

count:
  %its_chunk_at = getelementptr i8, ptr %data, i64 CHUNKAT
  %its_chunk_on_wire = load i32, ptr %its_chunk_at, align 2
  %its_chunk32 = call i32 @llvm.bswap.i32(i32 %its_chunk_on_wire)
  %its_chunk = zext i32 %its_chunk32 to i64
  %chunks_at = getelementptr i8, ptr @map.memory, i64 16
  %chunks = atomicrmw add ptr %chunks_at, i64 %its_chunk seq_cst
  %sampled = urem i64 %its_chunk, 61
  %is_sample = icmp eq i64 %sampled, 0
  br i1 %is_sample, label %sample, label %done

sample:
  %number = udiv i64 %its_chunk, 61
  %sample_turn = and i64 %number, 63
  %sample_row = mul i64 %sample_turn, STRIDE
  %samples = getelementptr i8, ptr @map.memory, i64 SAMPLES
  %place = getelementptr i8, ptr %samples, i64 %sample_row
  %not_loaded = call i64 @helper.189(ptr %xdp, i64 0, ptr %place, i64 FRAME)
  br label %done

done:
  %results_at = getelementptr i8, ptr @map.memory, i64 8
  %before = atomicrmw add ptr %results_at, i64 1 seq_cst
  %results = add i64 %before, 1
  %all_at = getelementptr i8, ptr @map.memory, i64 32
  %all = load i64, ptr %all_at
  %is_last = icmp eq i64 %results, %all
  br i1 %is_last, label %last, label %drop

last:
  %now = call i64 @helper.5()
  %when_at = getelementptr i8, ptr @map.memory, i64 24
  store i64 %now, ptr %when_at
  br label %drop

drop:
  ret i32 1

other:
  ret i32 2
}
