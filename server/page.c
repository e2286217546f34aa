/* page.c: finds the chat page's files, and holds what is shown at / in a program that was built without them. */
#include "page.h"

#include <string.h>

static const char none_html[] =
    "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>Swiftlet</title></head>\n<body>\n"
    "<h1>Swiftlet</h1>\n"
    "<p>The server is running. This program was built without the chat page: install npm with Node 18 or newer, then "
    "configure and build again with -D SWL_WEB=ON.</p>\n"
    "<p>Programs use this address with /v1 behind it.</p>\n</body>\n</html>\n";

static const swl_page_file none = {"/", "text/html; charset=utf-8", "no-cache", none_html, sizeof none_html - 1, NULL, 0};

const swl_page_file *swl_page_find(const char *path)
{
#ifdef SWL_HAVE_PAGE
    for (size_t i = 0; i < swl_page_n_files; i++) {
        if (!strcmp(path, swl_page_files[i].path))
            return &swl_page_files[i];
    }
    if (swl_page_n_files)
        return NULL;
#endif
    return strcmp(path, none.path) ? NULL : &none;
}
