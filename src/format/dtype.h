/* dtype.h: the element types of safetensors files. */
#ifndef SWL_FORMAT_DTYPE_H
#define SWL_FORMAT_DTYPE_H

#include <swiftlet/swiftlet.h>

typedef enum swl_dtype {
    SWL_DT_NONE, SWL_DT_F32, SWL_DT_F16, SWL_DT_BF16, SWL_DT_F8_E4M3, SWL_DT_F8_E5M2, SWL_DT_F8_E8M0, SWL_DT_U8,
    SWL_DT_I8, SWL_DT_I32, SWL_DT_U32, SWL_DT_I64, SWL_DT_BOOL, SWL_DT_COUNT
} swl_dtype;

const char *swl_dtype_name(swl_dtype t);            /* "BF16" */
swl_dtype swl_dtype_parse(const char *name);        /* SWL_DT_NONE when unknown */
int32_t swl_dtype_size(swl_dtype t);                /* bytes per element */

/* Exact widening; src may be unaligned. F32, F16, BF16, F8_E4M3 and F8_E8M0 only (asserted). E4M3 has no infinity and
 * one NaN of either sign; E8M0 is 2^(byte - 127), 255 a NaN. */
void swl_dtype_to_f32(swl_dtype t, const void *src, float *dst, int64_t n);
float swl_f16_to_f32(uint16_t h);
uint16_t swl_f32_to_f16(float f);                   /* round to nearest even */
float swl_bf16_to_f32(uint16_t h);
uint16_t swl_f32_to_bf16(float f);                  /* round to nearest even; NaN stays NaN */

#endif
