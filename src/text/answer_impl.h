/*
 * answer_impl.h: what the files of the answer parser share.
 *
 * Input waits in `in` until a state can tell what it is; each state is a function that takes some of it and returns true,
 * or returns false because only more input (or the end) can tell.
 *
 *     answer.c       reasoning and answer text, and where calls begin
 *     answer_call.c  how every call begins, ends and breaks; the JSON form
 *     answer_xml.c   the <function=...> form
 *     answer_out.c   events: white space and stop strings held back
 */
#ifndef SWL_TEXT_ANSWER_IMPL_H
#define SWL_TEXT_ANSWER_IMPL_H

#include "text/answer.h"
#include "text/json_step.h"
#include "text/sbuf.h"
#include "text/stop_strings.h"

enum { SWL_ANSWER_NAME_MAX = 256 }; /* bytes of a function's or parameter's name in the XML form */

typedef struct swl_answer_json {
    swl_json_step scan;
    enum { SWL_MEMBER_OTHER, SWL_MEMBER_NAME, SWL_MEMBER_ARGS } member; /* whose value comes or is being read */
    swl_sbuf key, name, other;
    swl_sbuf *sink;             /* where bytes go */
    bool named, args_done;      /* these members are whole */
    bool args_begun;
    bool args_text;             /* the arguments are a string that holds JSON */
    size_t n_safe;              /* of args: what may be sent */
} swl_answer_json;

typedef struct swl_answer_xml {
    const json_t *parameters;   /* the schema, or NULL */
    swl_sbuf keys;              /* those seen, each followed by a newline */
    uint32_t kinds;             /* of the current parameter */
    swl_sbuf key;
    bool at_start;              /* of the value: a newline is still to be dropped */
    bool line_start;            /* what waits in `in` begins a line */
    bool sent;                  /* the value is a string whose beginning was sent */
    size_t scanned;             /* bytes of `in` from `at` that hold no more tags */
    size_t candidate;           /* where the last </parameter> stands, SIZE_MAX: none */
} swl_answer_xml;

struct swl_answer {
    swl_answer_options opt;
    json_t *tools;
    bool (*step)(swl_answer *a, bool final); /* the state */
    bool (*home)(swl_answer *a, bool final); /* where to go on after a call, or what looked like one */
    swl_detok detok;
    swl_sbuf in;
    size_t at;                  /* in[0..at) has been taken */
    size_t tag_end;             /* where in `in` the last <tool_call> token ends; 0: nowhere */
    bool fresh;                 /* nothing but white space in this state so far */
    bool drop_newline;          /* the next one */
    bool line_start;            /* in[at] begins a line */

    /* out */
    swl_stop_strings *stop;
    swl_answer_kind held_kind;  /* of what the stop strings hold back */
    swl_sbuf passed;            /* what they let pass */
    swl_sbuf white;             /* white space at the end of the text so far: dropped if a tag follows */
    bool skip_white;            /* at the beginning of the answer after reasoning */
    bool after_call;            /* no text since the last call */
    int32_t stopped_by;
    bool cancelled;

    /* the call */
    swl_sbuf raw;               /* all of its text, the white space before included */
    swl_sbuf args;              /* its arguments as JSON */
    swl_sbuf stray;             /* text between its parts */
    size_t n_sent;              /* of args */
    bool begun;                 /* CALL_BEGIN has gone out */
    bool tagged;                /* it began with <tool_call> */
    bool unclosed;
    int32_t call, n_calls;      /* the current one's index; those that have begun */
    int32_t n_good;             /* those that ended well */
    swl_answer_json json;
    swl_answer_xml xml;
};

/* ---- input ---- */

typedef enum swl_tag_match { SWL_TAG_NO, SWL_TAG_PART, SWL_TAG_YES } swl_tag_match;

static inline const char *swl_answer_in(const swl_answer *a)
{
    return a->in.p + a->at;
}

static inline size_t swl_answer_n_in(const swl_answer *a)
{
    return a->in.n - a->at;
}

/* Whether `tag` stands `from` bytes into the waiting input; PART: perhaps, when more has come. */
swl_tag_match swl_answer_tag(const swl_answer *a, size_t from, const char *tag, bool final);
/* How much white space waits from there on. */
size_t swl_answer_white(const swl_answer *a, size_t from);
/* Takes n bytes of input; the second form keeps them as the call's text. */
void swl_answer_take(swl_answer *a, size_t n);
void swl_answer_take_raw(swl_answer *a, size_t n);

/* ---- states ---- */

bool swl_answer_reasoning(swl_answer *a, bool final);
bool swl_answer_content(swl_answer *a, bool final);
bool swl_answer_call_open(swl_answer *a, bool final);
bool swl_answer_call_after(swl_answer *a, bool final);
bool swl_answer_call_json(swl_answer *a, bool final);
bool swl_answer_xml_name(swl_answer *a, bool final);

/* ---- calls (answer_call.c) ---- */

/* The waiting input starts with `tag` ("<tool_call>", "<function=") and may be a call. */
void swl_answer_call_starts(swl_answer *a, const char *tag);
/* It is one. */
void swl_answer_call_begin(swl_answer *a, const char *name, size_t n);
/* Sends the arguments up to byte `n`. */
void swl_answer_call_send(swl_answer *a, size_t n);
/* The arguments are whole; what comes after them decides how the call ends. */
void swl_answer_call_whole(swl_answer *a, bool unclosed);
/* It is none, or it broke off: the arguments, if begun, are JSON by now. Goes on at home. */
void swl_answer_call_breaks(swl_answer *a);

/* ---- output (answer_out.c) ---- */

void swl_answer_emit(swl_answer *a, swl_answer_kind kind, const char *p, size_t n);
/* The text before a tag ends: its trailing white space moves to the call's text, or is dropped. */
void swl_answer_settle(swl_answer *a, swl_sbuf *white);
/* The end of everything: what is held back goes out, white space too where it is part of the text. */
void swl_answer_emit_rest(swl_answer *a);
void swl_answer_event_out(swl_answer *a, const swl_answer_event *e);

#endif
