/* nfc.h: Unicode normalisation form C for the tokenizer. */
#ifndef SWL_TEXT_NFC_H
#define SWL_TEXT_NFC_H

#include "base/status.h"

/* True when the well-formed UTF-8 text is certainly NFC already; false means that swl_nfc must look. One pass. */
bool swl_nfc_is_sure(const uint8_t *text, size_t n_bytes);

/* NFC of well-formed UTF-8, in time linear in the text. *out: free with swl_free; not NUL-terminated. */
swl_status swl_nfc(uint8_t **out, size_t *n_out, const uint8_t *text, size_t n_bytes, swl_error *err);

#endif
