/* The projection of a block of latent vectors by w_uv, with the sums in registers.
 *
 * Rows of w_uv are copied a tile at a time, converted and aligned, and then serve all latent vectors of the block.
 *
 * Before inclusion: D, K, BLOCK_M (latent vectors of a block), BLOCK_K (rows of w_uv in a tile), ROWS (divides BLOCK_M)
 * and VECTORS. */
#ifndef COMMON_PROJECTION_H
#define COMMON_PROJECTION_H

#include <math.h>

#include "element.h"
#include "vector.h"
#include "weighted_rows.h"

#define RESULT_STRIDE ROUND_UP(D, LANES)

_Static_assert(BLOCK_M % ROWS == 0, "a block consists of whole groups");

/* Working memory of a block, on its thread's stack; latent[g][y][r] is element y of latent vector g * ROWS + r. */
struct projection {
    float tile[BLOCK_K][RESULT_STRIDE];
    float result[BLOCK_M][RESULT_STRIDE];
    float latent[BLOCK_M / ROWS][K][ROWS];
} __attribute__((aligned(64)));

/* Starts with all results and latent vectors zero. */
ALWAYS_INLINE void begin_projection(struct projection *block)
{
    memset(block->result, 0, sizeof block->result);
    memset(block->latent, 0, sizeof block->latent);
}

/* Latent vector r += weight * part [K]. */
ALWAYS_INLINE void add_latent(struct projection *block, int64_t r, float weight, const float *part)
{
    float(*latent)[ROWS] = block->latent[r / ROWS];
    for (int64_t y = 0; y < K; y++)
        latent[y][r % ROWS] += weight * part[y];
}

/* result += latent · w for the first `rows` of the block; w [K,D]. */
static void project_block(struct projection *block, int64_t rows, const element *w)
{
    float keep[ROWS];
    for (int r = 0; r < ROWS; r++)
        keep[r] = 1.0f;
    for (int64_t first = 0; first < K; first += BLOCK_K) {
        int64_t count = min(BLOCK_K, K - first);
        for (int64_t y = 0; y < count; y++)
            copy_row(block->tile[y], w + (first + y) * D, D, RESULT_STRIDE);
        for (int64_t row = 0; row < rows; row += ROWS)
            add_weighted_rows(block->result[row], RESULT_STRIDE, keep, block->latent[row / ROWS][first],
                              block->tile[0], RESULT_STRIDE, count);
    }
}

/* Weight of the part with log-sum-exp `lse` among parts of which `largest` is the largest; 0 where no part saw a key. */
static inline float part_weight(float lse, float largest)
{
    return largest > -INFINITY ? expf(lse - largest) : 0.0f;
}

#endif
