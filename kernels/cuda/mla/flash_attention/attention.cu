/* flash_attention v0: attention over decompressed keys and values, as it is defined.
 *
 * One block a query row, float arithmetic; see plain.cuh. */
#include "../../common/plain.cuh"

/* q [b,h,s,d], qpe [b,h,s,p], key and value [b,t,h,d], kpe [b,t,p] (shared by the heads), o [b,h,s,d].
 * Block x takes row x of the b * h * s. Shared memory: d + p + d floats. */
extern "C" __global__ void __launch_bounds__(THREADS)
attention(const element *q, const element *qpe, const element *key, const element *value, const element *kpe,
          element *o, long long s, long long t, long long h, long long d, long long p, float scale, long long causal)
{
    extern __shared__ float shared[];
    float *query = shared, *sum = shared + d + p;
    const int index = blockIdx.x, heads = (int)h, queries = (int)s;
    long long row = index, query_index = index % queries, head = index / queries % heads,
              request = index / queries / heads;

    plain_keys from;
    from.first = key + (request * t * h + head) * d;
    from.first_dims = d;
    from.first_stride = h * d;
    from.second = kpe + request * t * p;
    from.second_dims = p;
    from.second_stride = p;
    from.value = value + (request * t * h + head) * d;
    from.value_dims = d;
    from.value_stride = h * d;
    attend_row(q + row * d, qpe + row * p, from, visible_keys(t, s, query_index, causal, t), scale, query, sum);
    for (long long x = threadIdx.x; x < d; x += THREADS)
        o[row * d + x] = from_float(sum[x]);
}
