/* spin_copy v0: o = x, by as many blocks as the GPU holds at once, each of which first spins.
 *
 * `mlarun calibrate` makes it slower by a known part with `spins`: all blocks run at the same time, so that what each of
 * them does before its copy makes the launch longer by just that. */
#include "../../common/spin.cuh"

#define THREADS 512
#define HELD 4

/* x and o hold `count` elements, a multiple of four, and chain two. */
extern "C" __global__ void __launch_bounds__(THREADS) spin_copy(const element *x, const element *chain, element *o,
                                                                long long count, long long spins)
{
    if (threadIdx.x == 0 && spin(chain, spins) > 1e30f)
        o[0] = chain[0];
    __syncthreads();
    const float4 *from = reinterpret_cast<const float4 *>(x);
    float4 *to = reinterpret_cast<float4 *>(o), held[HELD];
    const long long end = count / 4, step = (long long)gridDim.x * THREADS * HELD;
    for (long long first = (long long)blockIdx.x * THREADS * HELD + threadIdx.x; first < end; first += step) {
#pragma unroll
        for (int i = 0; i < HELD; i++)
            if (first + i * THREADS < end)
                held[i] = from[first + i * THREADS];
#pragma unroll
        for (int i = 0; i < HELD; i++)
            if (first + i * THREADS < end)
                to[first + i * THREADS] = held[i];
    }
}
