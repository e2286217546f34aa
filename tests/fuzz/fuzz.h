/* fuzz.h: what a fuzz target defines, and how it states a property. */
#ifndef SWL_FUZZ_FUZZ_H
#define SWL_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* One input; returns 0. Called by libFuzzer or by driver.c. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Holds in every build, unlike assert. */
#define CHECK(x) ((x) ? (void)0 : (fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #x), abort()))

#endif
