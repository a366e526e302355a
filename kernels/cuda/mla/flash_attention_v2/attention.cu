/* flash_attention v2: attention over decompressed keys and values on tensor cores, pipelined.
 *
 * What differs from v1: no warp waits for another; each takes its own head and keys through its own ring of tiles in
 * swizzled shared memory, filled in the background; queries stay in registers; accumulators are rescaled only when a
 * maximum has grown much; and where there are few requests and heads, the keys are split. See decompressed_pipelined.cuh. */
#include "../../common/decompressed_pipelined.cuh"

/* q [b,h,s,D], qpe [b,h,s,P], key and value [b,t,h,D], kpe [b,t,P] (shared by the heads). A single split writes
 * o [b,h,s,D]; several write part [SPLITS,b,h,s,D] and lse [SPLITS,b,h,s] (base 2). The grid may have any size. */
extern "C" __global__ void __launch_bounds__(THREADS, 1) attention(const element *q, const element *qpe,
                                                                   const element *key, const element *value,
                                                                   const element *kpe, element *o, float *part,
                                                                   float *lse, long long b, long long s, long long t,
                                                                   long long h, float scale, long long causal)
{
    decompressed_work work = {q, qpe, key, value, kpe, b, s, t, t, h, SPLITS, causal != 0};
#if SPLITS == 1
    attend_decompressed<element>(work, o, nullptr, scale);
#else
    attend_decompressed<float>(work, part, lse, scale);
#endif
}
