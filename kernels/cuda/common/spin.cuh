/* A delay that is work: a chain of multiply-adds, each of which needs the one before it. */
#ifndef COMMON_SPIN_CUH
#define COMMON_SPIN_CUH

#include "element.cuh"

/* The end of a chain of `count` multiply-adds by chain[0], a factor below 1, and chain[1]. It stays below
 * chain[1] / (1 - chain[0]); whoever looks whether it is larger keeps the compiler from dropping the chain. */
INLINE float spin(const element *chain, long long count)
{
    const float factor = to_float(chain[0]), addend = to_float(chain[1]);
    float end = addend;
#pragma unroll 4
    for (int i = 0; i < (int)count; i++)
        end = end * factor + addend;
    return end;
}

#endif
