/* peak_stream: how fast the cores move memory that no cache holds.
 *
 * A block reads, or copies, one stretch of a buffer far larger than the last-level cache. Attention mostly reads, so
 * reading alone counts as well as copying; which of them, which width and how many strands are fastest depends on the
 * machine, so all are tried. Reading folds everything into a few words that are written, so that the compiler cannot
 * drop it. Elements are moved as bits; their type does not matter. */
#include "../../common/element.h"

typedef uint16_t vector __attribute__((vector_size(WIDTH), aligned(2), may_alias));

#define STEP (WIDTH / (int64_t)sizeof(element))

/* Elements CHUNK * block … CHUNK * (block + 1) of `elements`. from and to [elements]; reading writes the first element
 * of the stretch only. */
void stream(const element *from, element *to, int64_t elements, int64_t block)
{
    int64_t x = block * CHUNK;
    int64_t end = x + CHUNK < elements ? x + CHUNK : elements;
#if COPY
    for (; x + STRANDS * STEP <= end; x += STRANDS * STEP)
#pragma GCC unroll 16
        for (int i = 0; i < STRANDS; i++)
            *(vector *)(to + x + i * STEP) = *(const vector *)(from + x + i * STEP);
    for (; x < end; x++)
        to[x] = from[x];
#else
    vector strands[STRANDS] = {{0}};
    uint16_t folded = 0;
    for (; x + STRANDS * STEP <= end; x += STRANDS * STEP)
#pragma GCC unroll 16
        for (int i = 0; i < STRANDS; i++)
            strands[i] ^= *(const vector *)(from + x + i * STEP);
    for (; x < end; x++)
        folded ^= (uint16_t)(from[x] != 0);
    for (int i = 0; i < STRANDS; i++)
        for (int l = 0; l < WIDTH / 2; l++)
            folded ^= strands[i][l];
    to[block * CHUNK] = (element)folded;
#endif
}
