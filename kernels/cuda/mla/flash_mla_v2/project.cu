/* flash_mla v2, stage project: merges the parts of the splits by their log-sum-exp, and o = latent · w_uv.
 *
 * What differs from v1: a head's w_uv stays in shared memory, read once, while all rows of the head pass by in the
 * background; see project_pipelined.cuh. */
#include "../../common/project_pipelined.cuh"

/* part [SPLITS,b,h,s,K], lse [SPLITS,b,h,s] (base 2), w_uv [h,K,D], o [b,h,s,D].
 * Block (x, y, z): groups of BLOCK_M of the b * s rows from x on, head y, columns from BLOCK_N * z on. */
extern "C" __global__ void __launch_bounds__(THREADS, 1)
project(const element *part, const float *lse, const element *w_uv, element *o, long long b, long long s, long long h)
{
    merge_and_project<(SPLITS > 1), false>(part, lse, SPLITS, nullptr, nullptr, 0, w_uv, o, (int)b, (int)s, (int)h);
}
