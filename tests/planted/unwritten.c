/* The last element of the last row stays unwritten. */
#define ELEMENTS_WRITTEN(row, rows) ((row) + 1 == (rows) ? D - 1 : D)
#include "attention.h"
