/* Online softmax over tiles of keys, vectorised by hand: what the v2 kernels are made of.
 *
 * The queries of a block are taken ROWS at a time. Two small kernels do nearly all the work, both with their
 * accumulators in registers:
 *   - scores: ROWS queries times COLUMNS keys, one vector of partial dot products for each pair, so that every loaded
 *     vector is used several times; the lanes of four pairs are summed together.
 *   - values: ROWS results times VECTORS vectors of value elements, over all keys of the tile.
 * Scores are laid out [key][row]: the softmax of ROWS queries is then taken over whole vectors, without sums across
 * lanes, and the values kernel reads the weights of one key side by side.
 *
 * Keys of a tile are copied side by side first: rows of [b,t,h,d] lie h * d elements apart, which would map all of them
 * to the same few cache sets, and bfloat16 is converted once a tile instead of once a query.
 *
 * Before inclusion: SCORE_DIMS (elements of a query and of a key), VALUE_DIMS, BLOCK_M (queries of a block), BLOCK_T
 * (keys of a tile), ROWS (1, 2 or 4; divides BLOCK_M), COLUMNS (ROWS * COLUMNS is a multiple of 4), VECTORS, and
 * VALUES_ARE_KEYS where a value is the beginning of its key and needs no copy of its own. */
#ifndef COMMON_TILES_H
#define COMMON_TILES_H

#include <math.h>

#include "element.h"
#include "vector.h"
#include "weighted_rows.h"

#define SCORE_STRIDE ROUND_UP(SCORE_DIMS, LANES)
#define VALUE_STRIDE ROUND_UP(VALUE_DIMS, LANES)
/* Keys of a tile in whole groups of COLUMNS, and their scores with ROWS queries in whole vectors. */
#define TILE_KEYS ROUND_UP(BLOCK_T, COLUMNS)
#define TILE_SCORES ROUND_UP(TILE_KEYS *ROWS, LANES)

_Static_assert(ROWS == 1 || ROWS == 2 || ROWS == 4, "the rows of a group share a quad");
_Static_assert(ROWS * COLUMNS % 4 == 0, "four dot products are summed at a time");
_Static_assert(BLOCK_M % ROWS == 0, "a block consists of whole groups");

/* Working memory of a block, on its thread's stack. `sum` holds sum of exp(score - largest) * value. */
struct block {
    float query[BLOCK_M][SCORE_STRIDE];
    float key[TILE_KEYS][SCORE_STRIDE];
#ifndef VALUES_ARE_KEYS
    float value[TILE_KEYS][VALUE_STRIDE];
#endif
    float sum[BLOCK_M][VALUE_STRIDE];
    float scores[TILE_SCORES];
    float largest[BLOCK_M];
    float total[BLOCK_M];
} __attribute__((aligned(64)));

#ifdef VALUES_ARE_KEYS
#define VALUE_ROWS(block) ((block)->key[0]), SCORE_STRIDE
_Static_assert(VALUE_STRIDE <= SCORE_STRIDE, "a value is the beginning of its key");
#else
#define VALUE_ROWS(block) ((block)->value[0]), VALUE_STRIDE
#endif

/* Query r is `first` followed by `second`, times `scale`. */
ALWAYS_INLINE void load_query(struct block *block, int64_t r, const element *first, int64_t first_dims,
                              const element *second, int64_t second_dims, float scale)
{
    float *query = block->query[r];
    copy_row(query, first, first_dims, first_dims);
    copy_row(query + first_dims, second, second_dims, SCORE_STRIDE - first_dims);
    for (int64_t x = 0; x < SCORE_DIMS; x++)
        query[x] *= scale;
}

/* Starts `rows` queries with no key seen; the rows that fill up the last group become zero. */
ALWAYS_INLINE void begin_block(struct block *block, int64_t rows)
{
    for (int64_t r = 0; r < BLOCK_M; r++) {
        block->largest[r] = -INFINITY;
        block->total[r] = 0.0f;
    }
    int64_t filled = ROUND_UP(rows, ROWS);
    fill_zero(block->sum[0], filled * VALUE_STRIDE);
    fill_zero(block->query[rows % BLOCK_M], (filled - rows) * SCORE_STRIDE);
}

/* Fills the tile from key `present` on with zeros: what a query does not see must still be finite. */
ALWAYS_INLINE void pad_tile(struct block *block, int64_t present)
{
    for (int64_t j = present; j < TILE_KEYS; j++) {
        fill_zero(block->key[j], SCORE_STRIDE);
#ifndef VALUES_ARE_KEYS
        fill_zero(block->value[j], VALUE_STRIDE);
#endif
    }
}

/* block->scores[j][r] for the ROWS queries from `row` on. */
ALWAYS_INLINE void score_group(struct block *block, int64_t row)
{
    const float *query = block->query[row];
    for (int64_t j = 0; j < TILE_KEYS; j += COLUMNS) {
        const float *key = block->key[j];
        vector sums[COLUMNS * ROWS];
#pragma GCC unroll 16
        for (int i = 0; i < COLUMNS * ROWS; i++)
            sums[i] = splat(0.0f);
        for (int64_t x = 0; x < SCORE_STRIDE; x += LANES) {
            vector keys[COLUMNS];
#pragma GCC unroll 16
            for (int c = 0; c < COLUMNS; c++) {
                vector one = load(key + c * SCORE_STRIDE + x);
                HOLD(one);
                keys[c] = one;
            }
#pragma GCC unroll 16
            for (int r = 0; r < ROWS; r++) {
                vector one = load(query + r * SCORE_STRIDE + x);
                HOLD(one);
#pragma GCC unroll 16
                for (int c = 0; c < COLUMNS; c++)
                    sums[c * ROWS + r] += one * keys[c];
            }
        }
#pragma GCC unroll 16
        for (int i = 0; i < COLUMNS * ROWS; i += 4) {
            quad four = sums_of_four(sums[i], sums[i + 1], sums[i + 2], sums[i + 3]);
            memcpy(block->scores + j * ROWS + i, &four, sizeof four);
        }
    }
}

/* Turns scores into weights and updates `largest` and `total`; `keep` becomes the factor of earlier sums.
 * Query row + r sees the first visible[r] keys of the tile; none where that is not positive. */
ALWAYS_INLINE void softmax_group(struct block *block, int64_t row, const int64_t *visible, float *keep)
{
    float *scores = block->scores;
    for (int r = 0; r < ROWS; r++)
        for (int64_t j = visible[r] < 0 ? 0 : visible[r]; j < TILE_KEYS; j++)
            scores[j * ROWS + r] = -INFINITY;
    for (int64_t i = TILE_KEYS * ROWS; i < TILE_SCORES; i++)
        scores[i] = -INFINITY;

    /* Lane l of a vector belongs to row l % ROWS. */
    vector largest;
    for (int l = 0; l < LANES; l++)
        largest[l] = block->largest[row + l % ROWS];
    for (int64_t i = 0; i < TILE_SCORES; i += LANES)
        largest = larger(largest, load(scores + i));
    float after[ROWS];
    for (int r = 0; r < ROWS; r++) {
        after[r] = largest[r];
        for (int l = r + ROWS; l < LANES; l += ROWS)
            after[r] = after[r] > largest[l] ? after[r] : largest[l];
    }

    /* A query that has seen no key yet subtracts 0 instead of -infinity, and gets weights of 0. */
    vector before = splat(0.0f), shift;
    for (int l = 0; l < LANES; l++)
        shift[l] = after[l % ROWS] > -INFINITY ? after[l % ROWS] : 0.0f;
    for (int r = 0; r < ROWS; r++)
        before[r] = block->largest[row + r];
    vector factor = exp_negative(before - shift);
    vector total = splat(0.0f);
    for (int64_t i = 0; i < TILE_SCORES; i += LANES) {
        vector weight = exp_negative(load(scores + i) - shift);
        store(scores + i, weight);
        total += weight;
    }
    for (int r = 0; r < ROWS; r++) {
        float sum = 0.0f;
        for (int l = r; l < LANES; l += ROWS)
            sum += total[l];
        keep[r] = factor[r];
        block->total[row + r] = block->total[row + r] * keep[r] + sum;
        block->largest[row + r] = after[r];
    }
}

/* The first `rows` queries of the block meet the tile, of which query r sees the first seen[r] keys: at most as many as
 * exist, none where that is not positive. `seen` has BLOCK_M elements. */
static void meet_tile(struct block *block, int64_t rows, const int64_t *seen)
{
    for (int64_t row = 0; row < rows; row += ROWS) {
        float keep[ROWS];
        score_group(block, row);
        softmax_group(block, row, seen + row, keep);
        add_weighted_rows(block->sum[row], VALUE_STRIDE, keep, block->scores, VALUE_ROWS(block), BLOCK_T);
    }
}

/* Result of query r over the keys seen: 0 where there is none. */
ALWAYS_INLINE void store_result(const struct block *block, int64_t r, element *to)
{
    float factor = block->total[r] > 0.0f ? 1.0f / block->total[r] : 0.0f;
    for (int64_t x = 0; x < VALUE_DIMS; x++)
        to[x] = from_float(block->sum[r][x] * factor);
}

/* The same as float, to be merged with other parts: returns the logarithm of the sum of exp(score) over the keys seen,
 * -infinity where there is none. */
ALWAYS_INLINE float store_part(const struct block *block, int64_t r, float *to)
{
    float factor = block->total[r] > 0.0f ? 1.0f / block->total[r] : 0.0f;
    for (int64_t x = 0; x < VALUE_DIMS; x++)
        to[x] = block->sum[r][x] * factor;
    return block->total[r] > 0.0f ? block->largest[r] + logf(block->total[r]) : -INFINITY;
}

#endif
