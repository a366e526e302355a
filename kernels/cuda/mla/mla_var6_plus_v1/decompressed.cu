/* mla_var6_plus v1, stage decompressed: the newest n tokens by their decompressed keys and values, on tensor cores.
 *
 * What differs from v0: queries are taken 16 at a time and keys a tile at a time through mma.sync with online softmax;
 * four heads share the rotary keys. See decompressed_mma.cuh. */
#include "../../common/decompressed_mma.cuh"

/* q [b,h,s,D], qpe [b,h,s,P], key and value [b,n,h,D], kpe [b,t,P], fresh [b,h,s,D], lse [b,h,s] (base 2).
 * Block (x, y, z): heads from 4x on, queries from 16y on, request z. */
extern "C" __global__ void __launch_bounds__(THREADS) decompressed(const element *q, const element *qpe,
                                                                   const element *key, const element *value,
                                                                   const element *kpe, float *fresh, float *lse,
                                                                   long long s, long long t, long long n, long long h,
                                                                   float scale, long long causal)
{
    attend_decompressed<float>(q, qpe, key, value, kpe, fresh, lse, s, t, n, h, scale, causal, blockIdx.z, blockIdx.x,
                               blockIdx.y);
}
