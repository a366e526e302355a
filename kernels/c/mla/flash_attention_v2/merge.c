/* flash_attention v2, stage merge: one result out of the partial results of all splits.
 *
 * A split weighs exp(its log-sum-exp - the largest one). Where no split saw a key, all of them are -infinity and the
 * result is 0. */
#include <math.h>
#include <stdint.h>

#include "../../common/element.h"

/* The s queries of one head of one request; `block` counts the b * h of them.
 *
 * part [splits,b,h,s,d], lse [splits,b,h,s], o [b,h,s,d]; rows = b * h * s. */
void merge(const float *part, const float *lse, element *o, int64_t rows, int64_t s, int64_t splits, int64_t block)
{
    for (int64_t row = block * s; row < (block + 1) * s; row++) {
        float largest = -INFINITY;
        for (int64_t i = 0; i < splits; i++)
            largest = fmaxf(largest, lse[i * rows + row]);

        float sum[D] = {0.0f};
        float total = 0.0f;
        for (int64_t i = 0; i < splits && largest > -INFINITY; i++) {
            float weight = expf(lse[i * rows + row] - largest);
            total += weight;
            for (int64_t x = 0; x < D; x++)
                sum[x] += weight * part[(i * rows + row) * D + x];
        }
        for (int64_t x = 0; x < D; x++)
            o[row * D + x] = from_float(total > 0.0f ? sum[x] / total : 0.0f);
    }
}
