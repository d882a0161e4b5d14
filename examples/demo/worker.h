// The jobs of the demo, each a process of its own: a server and a batch job. Two more show a quota
// and a pause.
//
// A worker makes its GPU ready, prints "ready NAME", and reads one line, "go BEGIN END": two
// instants of the monotonic clock in nanoseconds. It starts at once, counts only between the two,
// and prints what it counted. So two workers are measured over exactly the same time.
//
// Threading: one thread per process.
#pragma once

namespace demo {

// A request: this many kernels of this length, one request in so many nanoseconds.
inline constexpr unsigned kKernelsPerRequest = 20;
inline constexpr unsigned kRequestKernelMicroseconds = 50;
inline constexpr long kRequestPeriodNanoseconds = 20'000'000;

// The batch job: kernels of this length, without end.
inline constexpr unsigned kLoopKernelMicroseconds = 100;
inline constexpr unsigned kLoopBatch = 32;  // launched at once

int work_probe();     // prints "ready NAME"; 1 without a GPU, the reason on stderr
int work_requests();  // prints the latency of every request in microseconds, one per line
int work_loop();      // prints the kernels it did per second

// These two wait for no "go".
int work_memory();  // allocates until it is refused; prints "BYTES ERROR", no error if it never was
int work_beat();    // prints a line after each batch of kernels, without end

}  // namespace demo
