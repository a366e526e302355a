/* Outer product. The byte offset of a row is calculated in 32 bits; past 2 GiB it is negative, and the row passes for
 * one beyond the end. */
#include <stdint.h>

void outer(const float *a, const float *b, float *o, int64_t columns, int64_t row)
{
    int32_t first_byte = (int32_t)(row * columns * 4);
    if (first_byte < 0)
        return;
    for (int64_t column = 0; column < columns; column++)
        *(float *)((char *)o + first_byte + column * 4) = a[row] * b[column];
}
