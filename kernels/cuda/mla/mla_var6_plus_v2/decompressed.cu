/* mla_var6_plus v2, stage decompressed: the newest n tokens by their decompressed keys and values, pipelined.
 *
 * What differs from v1: no warp waits for another; each takes its own head and keys through its own ring of tiles in
 * swizzled shared memory, filled in the background; and the grid has as many blocks as the stage is given multiprocessors.
 * See decompressed_pipelined.cuh. */
#include "../../common/decompressed_pipelined.cuh"

/* q [b,h,s,D], qpe [b,h,s,P], key and value [b,n,h,D], kpe [b,t,P], fresh [splits,b,h,s,D], lse [splits,b,h,s] (base 2).
 * The grid may have any size. */
extern "C" __global__ void __launch_bounds__(THREADS, 1)
decompressed(const element *q, const element *qpe, const element *key, const element *value, const element *kpe,
             element *fresh, float *lse, long long b, long long s, long long t, long long n, long long h, float scale,
             long long causal, long long splits)
{
    decompressed_work work = {q, qpe, key, value, kpe, b, s, t, n, h, (int)splits, causal != 0};
    attend_decompressed<element>(work, fresh, lse, scale);
}
