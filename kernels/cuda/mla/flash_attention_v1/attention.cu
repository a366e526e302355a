/* flash_attention v1: attention over decompressed keys and values on tensor cores.
 *
 * What differs from v0: queries are taken 16 at a time and keys a tile at a time through mma.sync with online softmax,
 * so that a key is read once for 16 queries; four heads share the rotary keys. See decompressed_mma.cuh. */
#include "../../common/decompressed_mma.cuh"

/* q [b,h,s,D], qpe [b,h,s,P], key and value [b,t,h,D], kpe [b,t,P] (shared by the heads), o [b,h,s,D].
 * Block (x, y, z): heads from 4x on, queries from 16y on, request z. */
extern "C" __global__ void __launch_bounds__(THREADS) attention(const element *q, const element *qpe,
                                                                const element *key, const element *value,
                                                                const element *kpe, element *o, long long s,
                                                                long long t, long long h, float scale, long long causal)
{
    attend_decompressed<element>(q, qpe, key, value, kpe, o, nullptr, s, t, t, h, scale, causal, blockIdx.z, blockIdx.x,
                                 blockIdx.y);
}
