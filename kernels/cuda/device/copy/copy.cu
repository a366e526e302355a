/* copy v0: o = x. A thread copies four times 16 bytes, all of them under way before the first is written. */
#include "../../common/element.cuh"

#define THREADS 256
#define CHUNKS 4

/* x and o hold `count` elements. Block x: the 16-byte chunks from THREADS * CHUNKS * x on. */
extern "C" __global__ void __launch_bounds__(THREADS) copy(const element *x, element *o, long long count)
{
    constexpr long long in_chunk = sizeof(uint4) / sizeof(element);
    const long long chunks = count / in_chunk, first = blockIdx.x * (long long)(THREADS * CHUNKS) + threadIdx.x;
    const uint4 *from = reinterpret_cast<const uint4 *>(x);
    uint4 *to = reinterpret_cast<uint4 *>(o), held[CHUNKS];
#pragma unroll
    for (int i = 0; i < CHUNKS; i++)
        if (first + i * THREADS < chunks)
            held[i] = from[first + i * THREADS];
#pragma unroll
    for (int i = 0; i < CHUNKS; i++)
        if (first + i * THREADS < chunks)
            to[first + i * THREADS] = held[i];
    /* What is left of a last chunk. */
    if (blockIdx.x == 0 && threadIdx.x < count % in_chunk)
        o[chunks * in_chunk + threadIdx.x] = x[chunks * in_chunk + threadIdx.x];
}
