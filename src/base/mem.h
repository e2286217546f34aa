/*
 * mem.h: the only door to the heap. Small memory comes zeroed; big memory comes aligned. Tests make the Nth allocation
 * fail through swl_mem_fail_after.
 */
#ifndef SWL_BASE_MEM_H
#define SWL_BASE_MEM_H

#include <swiftlet/swiftlet.h>

#define SWL_ALIGN 64 /* every tensor and buffer that a kernel touches: one cache line, one AVX-512 register */

/* n * size bytes, zeroed, product checked; NULL when out of memory or on overflow. Free with swl_free. n * size == 0
 * gives a valid pointer. */
void *swl_calloc(size_t n, size_t size);
/* Grows or shrinks to n * size bytes; new bytes are not cleared. On NULL the old block is still valid. */
void *swl_realloc(void *p, size_t n, size_t size);
char *swl_strdup(const char *s);
char *swl_strndup(const char *s, size_t n);
/* "a/b" */
char *swl_path_join(const char *dir, const char *name);
/* printf into a new string; NULL when out of memory. */
char *swl_asprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Page-aligned, zeroed memory straight from the system (pages appear when touched), with huge pages asked for from 2 MiB
 * up (then 2 MiB-aligned). Release with swl_big_free and the same size. */
void *swl_big_alloc(uint64_t n_bytes);
void swl_big_free(void *p, uint64_t n_bytes);
/* Gives the memory of whole pages inside [p, p + n_bytes) back to the system; the addresses stay valid and read as zero
 * (or, where the system keeps them until it is short of memory, as before). */
void swl_big_discard(void *p, uint64_t n_bytes);

/* Test hook: after `n` more successful allocations through this header one allocation fails (once), or all that follow
 * (for_good). n < 0: off. Process-wide; not for use while other threads allocate. */
void swl_mem_fail_after(int64_t n, bool for_good);

#endif
