// The settings that other schedulers leave in a container's environment, as ours.
//
// Concept. HAMi and KAI choose the GPU of a pod and write its part into variables. Here alone they
// are read: the library and the tools know only SWITCHYARD_*. Where ours is set, it wins.
//
//   CUDA_DEVICE_MEMORY_LIMIT[_i]   a size: SWITCHYARD_MEMORY, which is the same on each GPU. Of
//                                  sizes that differ the smallest holds, with a line.
//   CUDA_DEVICE_SM_LIMIT           percent of the GPU's time: SWITCHYARD_LIMIT; 0, 100: none
//   CUDA_TASK_PRIORITY             0: SWITCHYARD_PRIORITY=high; 1: low
//   GPU_PORTION                    a part of a GPU, 0 to 1: SWITCHYARD_SHARE, the weight
//
// A bad value is said in one line, and the setting is left out.
//
// Threading: changes the environment; the only thread.
#pragma once

void take_others_settings(void);
