/*
 * python_literal.h: values that a model wrote the way Python prints them, {'a': True, 'b': None}, as JSON. Dictionaries,
 * lists, tuples, strings, decimal numbers and the three names; keys are strings or whole numbers.
 */
#ifndef SWL_TEXT_PYTHON_LITERAL_H
#define SWL_TEXT_PYTHON_LITERAL_H

#include "text/sbuf.h"

/* Appends the JSON of n bytes of UTF-8. False: it is no such literal; *out is as before. */
bool swl_python_literal_put(const char *p, size_t n, swl_sbuf *out);

/* Appends a number as Python's int() or float() reads it (a sign, leading zeros, a bare point), in JSON's spelling. False:
 * it is none, or not finite by name. */
bool swl_python_int_put(const char *p, size_t n, swl_sbuf *out);
bool swl_python_float_put(const char *p, size_t n, swl_sbuf *out);

#endif
