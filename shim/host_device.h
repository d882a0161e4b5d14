// For code that the CPU and a kernel of ours share.
//
// Threading: stateless.
#pragma once

#ifdef __CUDACC__
#define SWITCHYARD_BOTH __host__ __device__
#else
#define SWITCHYARD_BOTH
#endif
