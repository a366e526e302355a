/* mla_var6_plus v2, stage combine: merges the parts of old and of new tokens by their log-sum-exp, projecting the old ones.
 *
 * What differs from v1: tiles come in the background to swizzled shared memory, and their sizes are tuned; see
 * project_pipelined.cuh. */
#include "../../common/project_pipelined.cuh"

/* part [parts,b,h,s,K], fresh [fresh_parts,b,h,s,D] and their lse (base 2), w_uv [h,K,D], o [b,h,s,D]. Either number of
 * parts may be 0; those are not read.
 * Block (x, y, z): of the b * s rows of head y those from BLOCK_M * x on, columns from BLOCK_N * z on. */
extern "C" __global__ void __launch_bounds__(THREADS)
    combine(const element *part, const float *part_lse, const float *fresh, const float *fresh_lse, const element *w_uv, element *o,
            long long b, long long s, long long h, long long parts, long long fresh_parts)
{
    merge_and_project(part, part_lse, (int)parts, fresh, fresh_lse, (int)fresh_parts, w_uv, o, b, s, h, blockIdx.y, blockIdx.x,
                      blockIdx.z);
}
