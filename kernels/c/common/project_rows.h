/* The projection of a few latent vectors by w_uv, in plain C that the compiler vectorises along D.
 *
 * Before inclusion: D and K, and element.h. */
#ifndef COMMON_PROJECT_ROWS_H
#define COMMON_PROJECT_ROWS_H

/* sums[r] += latent[r] · w for 1 to 4 rows; latent [rows,K], w [K,D]. Four rows of w are taken at a time, so that sums
 * are loaded and stored a quarter as often. */
static void project_rows(float (*restrict sums)[D], const float *restrict latent, int64_t rows,
                         const element *restrict w)
{
    int64_t y = 0;
    for (; y + 4 <= K; y += 4) {
        float w0[D], w1[D], w2[D], w3[D];
        for (int64_t x = 0; x < D; x++) {
            w0[x] = to_float(w[y * D + x]);
            w1[x] = to_float(w[(y + 1) * D + x]);
            w2[x] = to_float(w[(y + 2) * D + x]);
            w3[x] = to_float(w[(y + 3) * D + x]);
        }
        for (int64_t r = 0; r < rows; r++) {
            const float *l = latent + r * K + y;
            for (int64_t x = 0; x < D; x++)
                sums[r][x] += l[0] * w0[x] + l[1] * w1[x] + l[2] * w2[x] + l[3] * w3[x];
        }
    }
#if K % 4
    for (; y < K; y++)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t x = 0; x < D; x++)
                sums[r][x] += latent[r * K + y] * to_float(w[y * D + x]);
#endif
}

#endif
