/* mla_var6_plus v2, stage combine: merges the parts of old and of new tokens by their log-sum-exp, projecting the old ones.
 *
 * What differs from v1: a head's w_uv stays in shared memory, read once, while all rows of the head pass by in the
 * background; see project_pipelined.cuh. */
#include "../../common/project_pipelined.cuh"

/* part [parts,b,h,s,K], fresh [fresh_parts,b,h,s,D] and their lse (base 2), w_uv [h,K,D], o [b,h,s,D]. Either number of
 * parts may be 0; those are not read.
 * Block (x, y, z): groups of BLOCK_M of the b * s rows from x on, head y, columns from BLOCK_N * z on. */
extern "C" __global__ void __launch_bounds__(THREADS, 1)
combine(const element *part, const float *part_lse, const element *fresh, const float *fresh_lse, const element *w_uv,
        element *o, long long b, long long s, long long h, long long parts, long long fresh_parts)
{
    merge_and_project<(SPLITS > 1), true>(part, part_lse, (int)parts, fresh, fresh_lse, (int)fresh_parts, w_uv, o,
                                          (int)b, (int)s, (int)h);
}
