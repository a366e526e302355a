/* spin_fma v0: multiply-adds in registers, by as many blocks as the GPU holds at once, each of which first spins. See
 * spin_copy. */
#include "../../common/spin.cuh"

#define THREADS 256
/* Sums of a thread, which do not depend on one another. */
#define SUMS 8

/* chain holds two elements: a factor below 1, and an addend; o holds THREADS a block. */
extern "C" __global__ void __launch_bounds__(THREADS) spin_fma(const element *chain, element *o, long long steps,
                                                               long long spins)
{
    const float factor = to_float(chain[0]), addend = to_float(chain[1]);
    if (threadIdx.x == 0 && spin(chain, spins) > 1e30f)
        o[0] = chain[0];
    __syncthreads();
    float sums[SUMS];
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        sums[i] = addend * (float)(threadIdx.x + i + 1);
#pragma unroll 4
    for (int n = 0; n < (int)steps; n++)
#pragma unroll
        for (int i = 0; i < SUMS; i++)
            sums[i] = sums[i] * factor + addend;
    float total = 0.0f;
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        total += sums[i];
    o[(long long)blockIdx.x * THREADS + threadIdx.x] = from_float(total);
}
