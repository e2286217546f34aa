/*
 * swiftlet.h: the public interface of libswiftlet, and the only public header.
 *
 * A model is opened once and shared, read-only, by any number of sessions and threads. A session is one conversation:
 * its state (KV cache, convolution and delta-net state) and its position; one thread at a time may use it. A tokenizer
 * turns text into ids and back; it is independent of the model's weights and may be shared by threads.
 *
 * A call may take half a mebibyte of its caller's stack: threads that make them want 1 MiB (those of macOS have 512 KiB unless
 * told otherwise, those of musl 128 KiB).
 *
 * Every function that can fail returns a swl_status and describes the fault in a caller-owned swl_error (may be NULL).
 * The library never prints, never exits and reads no environment. Strings are UTF-8. Pointers passed in are borrowed
 * for the call; what a function hands out and who frees it is said beside it.
 */
#ifndef SWIFTLET_H
#define SWIFTLET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define SWL_API
#else
#define SWL_API __attribute__((visibility("default")))
#endif

/* ---- status and errors ------------------------------------------------------------------------------------------ */

typedef enum swl_status {
    SWL_OK = 0,
    SWL_E_FAIL,        /* anything that has no code of its own */
    SWL_E_ARG,         /* an argument is out of range */
    SWL_E_NOMEM,       /* memory could not be had */
    SWL_E_BUDGET,      /* does not fit in the memory or disk budget; the message gives the figure that would */
    SWL_E_NOT_FOUND,   /* a file or model is missing */
    SWL_E_CORRUPT,     /* a file is not what its format says */
    SWL_E_UNSUPPORTED, /* well-formed, but not something this library computes; the message names it */
    SWL_E_IO,          /* the operating system refused a read or write; os_errno says why */
    SWL_E_NETWORK,     /* a remote source failed */
    SWL_E_CANCELLED,   /* the caller asked to stop */
    SWL_E_MISMATCH     /* a comparison with a reference failed */
} swl_status;

/* Written once, where the fault is seen. Owned by the caller; needs no cleanup. */
typedef struct swl_error {
    swl_status code;
    int os_errno;       /* 0 when no system call was involved */
    int64_t offset;     /* byte offset in `file`, -1 when it does not apply */
    char file[512];     /* the file at fault, "" when none; long paths keep their end */
    char message[768];  /* a whole sentence, with expected and found values */
} swl_error;

/* The short name of a status, for logs and JSON ("corrupt", "io", ...). Static storage. */
SWL_API const char *swl_status_name(swl_status st);

/* "MAJOR.MINOR.PATCH". Static storage. */
SWL_API const char *swl_version(void);

/* Frees memory that a swl_ function handed out with "free with swl_free". NULL is allowed. */
SWL_API void swl_free(void *p);

/* ---- tokenizer -------------------------------------------------------------------------------------------------- */

typedef struct swl_tokenizer swl_tokenizer;

/* Reads DIR/tokenizer.json (and tokenizer_config.json, generation_config.json, config.json for the stop set). */
SWL_API swl_status swl_tokenizer_open(swl_tokenizer **out, const char *dir, swl_error *err);
SWL_API void swl_tokenizer_close(swl_tokenizer *t);

enum {
    SWL_ENCODE_PLAIN = 1 /* do not match added tokens: "<|im_end|>" in the text stays ordinary text */
};

/* Text to ids. Invalid UTF-8 is replaced (each maximal invalid part by U+FFFD). *ids: free with swl_free. */
SWL_API swl_status swl_tokenizer_encode(const swl_tokenizer *t, const char *text, size_t n_bytes, uint32_t flags,
                                        int32_t **ids, int64_t *n_ids, swl_error *err);

/* No text of n_bytes has fewer tokens, whatever it says: what cannot fit in a context is known before it is taken apart. */
SWL_API int64_t swl_tokenizer_tokens_min(const swl_tokenizer *t, size_t n_bytes);

/* Ids to bytes (not necessarily whole UTF-8 characters at the ends), NUL-terminated. Special tokens are dropped when
 * skip_special. Ids that are no token give SWL_E_ARG. *text: free with swl_free. */
SWL_API swl_status swl_tokenizer_decode(const swl_tokenizer *t, const int32_t *ids, int64_t n_ids, bool skip_special,
                                        char **text, size_t *n_bytes, swl_error *err);

/* The bytes of one token; lives as long as the tokenizer. NULL and 0 for ids that are no token. */
SWL_API const char *swl_tokenizer_token(const swl_tokenizer *t, int32_t id, int32_t *n_bytes);

/* The id of an added token by its content ("<|im_end|>"), or -1. */
SWL_API int32_t swl_tokenizer_special(const swl_tokenizer *t, const char *content);

/* True for added tokens marked special in tokenizer.json. */
SWL_API bool swl_tokenizer_is_special(const swl_tokenizer *t, int32_t id);

/* One past the highest id that is a token; logits at or past it are padding. */
SWL_API int32_t swl_tokenizer_n_tokens(const swl_tokenizer *t);

/* True when `id` ends a generation (generation_config.json, config.json and tokenizer_config.json in union). */
SWL_API bool swl_tokenizer_is_stop(const swl_tokenizer *t, int32_t id);

/* Streaming detokeniser: bytes in, whole UTF-8 characters out. Plain storage, owned by the caller. */
typedef struct swl_detok {
    uint8_t tail[4];
    int32_t n_tail;
} swl_detok;

SWL_API void swl_detok_init(swl_detok *d);
/* Appends the n_bytes of one token. Writes every character that is now certain to `out` (needs room for
 * 3 * (n_bytes + 4) bytes: ill-formed parts become U+FFFD) and returns how many bytes were written. */
SWL_API size_t swl_detok_push(swl_detok *d, const char *bytes, size_t n_bytes, char *out);
/* End of the text: what is left becomes U+FFFD. Same return; at most 12 bytes. */
SWL_API size_t swl_detok_flush(swl_detok *d, char *out);

/* ---- model ------------------------------------------------------------------------------------------------------ */

typedef struct swl_model swl_model;

typedef struct swl_model_options {
    const char *path;          /* directory: .qpack, MLX checkpoint or Hugging Face checkpoint */
    int32_t n_threads;         /* 0: as many as the process may run on */
    uint64_t memory_bytes;     /* bound of the whole process; 0: what the machine and its cgroup have to give */
    uint64_t program_bytes;    /* of it, what the program needs for itself beside the model, a server for its requests */
    int32_t chunk_tokens;      /* prompt tokens per forward pass; 0: as the budget allows. Results do not depend on it. */
    int32_t ctx_tokens;        /* the longest conversation; 0: default */
    int32_t n_sessions;        /* conversations in memory at a time, counted in the budget; 0: 1 */
    int32_t pool_slots;        /* expert slots per layer; 0: as many as fit. Never below one token's experts. */
    uint64_t pool_bytes;       /* ceiling of the expert pool; 0: none. Less when memory_bytes does not allow it. */
    const char *io;            /* how experts are read: "uring", "threads"; NULL: what suits the drive */
    int32_t io_direct;         /* past the page cache: 1 yes, -1 no, 0 where it can be and is faster */
    int32_t io_depth;          /* reads in flight; 0: what suits the drive */
    const char *io_cache;      /* file that remembers what a probe of the drive found; NULL: a probe at every open, if the
                                  pool cannot hold all experts and there are many */
    int32_t lookahead;         /* experts of the next layer to read on a guess while the drive is idle: 1, for a prompt as many as
                                  fit; 0: none */
    bool no_checksums;         /* do not verify experts when they are loaded */
    const char *cache_policy;  /* which experts stay in the pool: "hybrid", "lru", "lfu-decay"; NULL: default */
    bool describe_only;        /* nothing is loaded: only swl_model_info_get, swl_memory_plan_get and close may follow, and a chat
                                  engine whose requests are made (for their prompts) and not submitted */
    bool exact;                /* float32 activations throughout (slower; for comparison with references) */
    const char *cpu_level;     /* highest kernel level to use, of SWL_CPU_LEVELS; NULL: best */
} swl_model_options;

/* The kernel levels of this architecture, lowest first, as one string with SEP (a string) between them. */
#if defined(__x86_64__)
#define SWL_CPU_LEVELS(SEP) "scalar" SEP "avx2" SEP "avxvnni" SEP "avx512"
#elif defined(__aarch64__)
#define SWL_CPU_LEVELS(SEP) "scalar" SEP "neon" SEP "dotprod" SEP "i8mm"
#else
#define SWL_CPU_LEVELS(SEP) "scalar"
#endif

typedef struct swl_model_info {
    char family[32];           /* model_type of config.json */
    char container[16];        /* "qpack", "mlx", "hf" */
    int32_t n_layers, n_attention_layers, n_moe_layers;
    int32_t hidden, vocab, n_experts, n_experts_used, expert_width;
    int32_t ctx_tokens, ctx_tokens_max;
    char expert_format[48];    /* e.g. "affine 4-bit, group 64" or "bf16" */
    uint64_t dense_bytes;      /* weights kept in memory */
    uint64_t expert_bytes;     /* one routed expert as read */
    uint64_t experts_bytes;    /* all routed experts */
    uint64_t state_bytes_fixed;/* delta-net and convolution state of one conversation */
    uint64_t kv_bytes_token;   /* KV cache per token */
    uint64_t pool_bytes;       /* expert pool as opened */
    int32_t pool_slots;        /* per layer */
    int32_t reads_per_expert;
    bool checksums;            /* blobs are verified when loaded */
    bool mtp;                  /* draft-head tensors are present */
    bool synthetic;            /* weights that nobody trained: swl_synthetic_create */
    char cpu_level[16];
    char io[32];               /* "uring, direct, depth 16"; "" without experts */
    int32_t n_threads;
} swl_model_info;

/* Where the memory of the process goes, all in bytes; decided before anything large is allocated. */
typedef struct swl_memory_plan {
    uint64_t limit;            /* the budget */
    uint64_t base;             /* program, libraries, tokenizer, small objects, program_bytes */
    uint64_t dense;            /* weights that are always in memory */
    uint64_t work;             /* buffers of a forward pass of chunk_tokens */
    uint64_t state;            /* n_sessions conversations: delta-net and convolution state, KV cache of ctx_tokens, logits */
    uint64_t marks;            /* n_marks copies of the recurrent state for each */
    uint64_t io;               /* buffers of the expert store */
    uint64_t pool;             /* pool_slots experts in every layer */
    uint64_t total;            /* of the above, limit excepted */
    uint64_t drift;            /* what the program may touch between a plan and opening the model by it, and base has no room for;
                                * not in total */
    uint64_t floor;            /* a limit that would do for this context, and for the pool_slots that were asked for: the smallest
                                * one, and drift */
    uint64_t pool_all;         /* a pool that holds every expert */
    int32_t ctx_tokens, chunk_tokens, pool_slots, n_experts, n_marks, n_sessions;
} swl_memory_plan;

/* The plan that swl_model_open would follow, without loading anything. SWL_E_BUDGET when the limit is too small: *out is
 * filled all the same, and the message gives the figure that would do. */
SWL_API swl_status swl_memory_plan_make(swl_memory_plan *out, const swl_model_options *opt, swl_error *err);
/* The plan of an open model. */
SWL_API void swl_memory_plan_get(const swl_model *m, swl_memory_plan *out);

SWL_API void swl_model_options_init(swl_model_options *opt);
SWL_API swl_status swl_model_open(swl_model **out, const swl_model_options *opt, swl_error *err);
SWL_API void swl_model_close(swl_model *m);    /* after its sessions; NULL is allowed */
SWL_API void swl_model_info_get(const swl_model *m, swl_model_info *out);

/* For apps that are told of memory pressure: the expert pool gives back what it has above pool_bytes, between passes and from
 * any thread, and grows again when called with more; never below one token's experts, never above the plan. On Linux the
 * model also follows the system's own measure of memory pressure. Results do not depend on it. */
SWL_API swl_status swl_model_resize_pool(swl_model *m, uint64_t pool_bytes, swl_error *err);

enum { SWL_READ_TIMES = 16 };

typedef struct swl_model_stats {
    uint64_t expert_hits, expert_misses, expert_bytes_read;
    uint64_t expert_guesses, expert_guesses_right; /* read on a guess; of those, used (they count as hits) */
    uint64_t expert_evictions; /* gave up their place in the pool */
    uint64_t n_reads;          /* of the drive that have ended, */
    uint64_t read_ns;          /* the time from asking for each until its end was noticed, */
    uint64_t reading_ns;       /* the time with at least one on its way, */
    uint64_t read_times[SWL_READ_TIMES]; /* and how many took at most 50 us * 2^i; the last one has all longer ones too */
    int32_t n_reading;         /* reads on their way */
    uint64_t pool_bytes;       /* memory of the expert pool now */
} swl_model_stats;
SWL_API void swl_model_stats_get(const swl_model *m, swl_model_stats *out);

/* ---- session ---------------------------------------------------------------------------------------------------- */

typedef struct swl_session swl_session;

SWL_API swl_status swl_session_create(swl_session **out, swl_model *m, swl_error *err);
SWL_API void swl_session_free(swl_session *s);
/* Back to an empty conversation. */
SWL_API void swl_session_reset(swl_session *s);
/* Number of tokens that the state covers. */
SWL_API int32_t swl_session_n_tokens(const swl_session *s);

/* Asks the running swl_generate or swl_session_eval to stop, within a part of a layer also in the middle of a prompt; stays
 * until it is switched off. From any thread or signal handler. swl_generate then ends with SWL_FINISH_CANCELLED and the
 * conversation at its last mark; swl_session_eval gives SWL_E_CANCELLED. A batch of several sessions is not stopped. */
SWL_API void swl_session_cancel(swl_session *s, bool on);

typedef enum swl_logits_wanted { SWL_LOGITS_NONE, SWL_LOGITS_LAST, SWL_LOGITS_ALL } swl_logits_wanted;

/* Runs n tokens and appends them to the conversation. `logits` receives [1 or n][vocab] float32 as wanted (NULL with
 * SWL_LOGITS_NONE). On an error the session must be reset or freed. */
SWL_API swl_status swl_session_eval(swl_session *s, const int32_t *ids, int32_t n, swl_logits_wanted want,
                                    float *logits, swl_error *err);

/*
 * Marks: the places that a conversation can go back to. A recurrent state cannot be rewound, so it is copied at a mark;
 * swl_generate sets marks by itself (before the last message, at the prompt's end, every few thousand tokens). A session
 * keeps at most as many as its memory plan allows and drops the one that is missed least.
 */
/* Marks where the conversation is now. */
SWL_API swl_status swl_session_mark(swl_session *s, swl_error *err);
/* Goes back to the last mark at or before n tokens (0 is always one) and returns where that is. n at or past the end does
 * nothing. */
SWL_API int32_t swl_session_rewind(swl_session *s, int32_t n);
/* How many tokens of ids[0..n) the conversation could keep: what is equal, back to the last mark. Changes nothing. */
SWL_API int32_t swl_session_match(const swl_session *s, const int32_t *ids, int32_t n);
/* The token ids that the state covers, [swl_session_n_tokens]. Valid until the session runs again. */
SWL_API const int32_t *swl_session_ids(const swl_session *s);
/* A second conversation with the same past (marks are not copied). Free with swl_session_free. */
SWL_API swl_status swl_session_fork(swl_session **out, const swl_session *s, swl_error *err);

/* What one conversation runs in a pass that it shares with others. */
typedef struct swl_batch_entry {
    swl_session *session;
    const int32_t *ids;
    int32_t n;
    swl_logits_wanted want;
} swl_batch_entry;

/* swl_session_eval for several conversations of one model together: each weight, and each expert, is read once for all of
 * them. The results are those of separate calls, to the bit. `logits` receives the wanted rows of [vocab] float32, entries
 * in order (NULL if there are none). A session may appear once. What can be refused is refused before anything runs; on a
 * later error every session of the call must be reset or freed. */
SWL_API swl_status swl_batch_eval(const swl_batch_entry *entries, int32_t n_entries, float *logits, swl_error *err);

/* Snapshot of the conversation: written atomically, checked when read. A file of another model is refused. */
SWL_API swl_status swl_session_save(const swl_session *s, const char *path, swl_error *err);
SWL_API swl_status swl_session_load(swl_session *s, const char *path, swl_error *err);

/* ---- sampling and generation ------------------------------------------------------------------------------------ */

typedef struct swl_sampling {
    float temperature;         /* 0: the argmax */
    int32_t top_k;             /* 0: all */
    float top_p;               /* 1: all */
    float min_p;               /* 0: all */
    float repetition_penalty;  /* divides positive logits, multiplies negative ones, of tokens that occurred; 1: none */
    float presence_penalty;    /* subtracted from the logits of tokens that were generated before; 0: none */
    float frequency_penalty;   /* subtracted for every time that a token was generated before; 0: none */
    int32_t repeat_last_n;     /* how far back repetition_penalty looks, prompt included; < 0: everything */
    uint64_t seed;
} swl_sampling;

/* temperature 0, everything else off. */
SWL_API void swl_sampling_init(swl_sampling *p);
/* The model's published defaults (DIR/generation_config.json); fields that it lacks keep their value. Without that file,
 * what the family's model cards advise (by DIR/config.json's model_type), or nothing when the family is unknown. */
SWL_API swl_status swl_sampling_load(swl_sampling *p, const char *dir, swl_error *err);

typedef struct swl_rng { uint64_t s[4]; } swl_rng;
SWL_API void swl_rng_init(swl_rng *r, uint64_t seed);

/* Draws one id from logits[0..n). Order: temperature, top-k, top-p, min-p, draw. Ties: lower id first. `scratch`: n
 * entries of workspace owned by the caller. The logits are left as they are. Non-finite logits are never drawn; if there
 * is no finite one the result is -1. */
typedef struct swl_candidate { float logit; int32_t id; } swl_candidate;
SWL_API int32_t swl_sample(const float *logits, int32_t n, const swl_sampling *p, swl_rng *rng, swl_candidate *scratch);

typedef enum swl_finish { SWL_FINISH_NONE, SWL_FINISH_STOP, SWL_FINISH_LENGTH, SWL_FINISH_CONTEXT,
                          SWL_FINISH_CANCELLED } swl_finish;

typedef struct swl_generate_options {
    const int32_t *prompt;     /* appended to the conversation first */
    int32_t n_prompt;
    bool whole;                /* the prompt is the whole conversation: what the session has of it is not run again */
    int32_t n_max;             /* tokens to produce; <= 0: until a stop token or the context's end */
    swl_sampling sampling;
    bool ignore_stop;          /* go on past stop tokens */
    const swl_tokenizer *tokenizer; /* for stop tokens, the mask of padding ids, and text; may be NULL */
    /* Called for every token with the text that became whole with it (may be empty; not NUL-terminated); and once
     * more with id -1 for the rest at the end. Return false to stop. May be NULL. */
    bool (*on_token)(void *arg, int32_t id, const char *text, size_t n_bytes);
    /* Called while the prompt is read. Return false to stop. May be NULL. */
    bool (*on_prompt)(void *arg, int32_t n_done, int32_t n_total);
    void *arg;
} swl_generate_options;

typedef struct swl_generate_result {
    int32_t n_prompt, n_cached, n_generated; /* n_cached: of n_prompt, not run again */
    double prompt_seconds, generate_seconds;
    swl_finish finish;
} swl_generate_result;

SWL_API void swl_generate_options_init(swl_generate_options *opt);
/* Runs the prompt, then samples until something ends it. A stop token is not part of the text and is left out of the
 * state. */
SWL_API swl_status swl_generate(swl_session *s, const swl_generate_options *opt, swl_generate_result *res,
                                swl_error *err);

/* ---- chat engine: requests by messages ------------------------------------------------------------------------------ */

/*
 * The engine turns messages into prompts by the model's own chat template, finds what earlier conversations already computed
 * of a prompt, runs many requests together in shared passes, and hands out what is generated as events: reasoning, text, tool
 * calls. Results do not depend on what else runs.
 *
 * Threads: swl_engine_step by one thread at a time; every other function here by any thread. Events are delivered by the
 * thread that steps.
 */
typedef struct swl_engine swl_engine;
typedef struct swl_request swl_request;

typedef struct swl_engine_options {
    swl_model *model;          /* borrowed; its n_sessions conversations are kept for reuse */
    const swl_tokenizer *tokenizer; /* borrowed */
    const char *dir;           /* the model's directory: chat template (chat_template.jinja, tokenizer_config.json) */
    const char *template_path; /* use this template instead; NULL */
    const char *session_dir;   /* conversations that leave memory go here and come back from here, those of 32 tokens and more;
                                  NULL: nowhere */
    uint64_t session_dir_bytes;/* oldest files are removed above this; 0: 8 GiB */
    bool strip_thinking;       /* leave old reasoning to the template. Default: keep it where the template can, because
                                  dropping it makes the next turn read the last answer again */
    bool parse_special;        /* "<|im_end|>" typed by a user is the token, as in transformers. Default: it is text */
    /* A conversation left memory and is in session_dir (err NULL), or could not be written and is lost (a full disk is no reason
     * to refuse an answer); told when the disk has said so, at the next step. By the thread that steps, restores or closes; must
     * not block, and call nothing of the engine. */
    void (*on_saved)(void *arg, const swl_error *err);
    void *arg;
} swl_engine_options;

SWL_API void swl_engine_options_init(swl_engine_options *opt);
SWL_API swl_status swl_engine_open(swl_engine **out, const swl_engine_options *opt, swl_error *err);
/* Requests are to be freed first. Saves conversations to session_dir. NULL is allowed. */
SWL_API void swl_engine_close(swl_engine *e);

/* What the chat template knows. */
typedef struct swl_template_info {
    char source[512];          /* the file, or "built in" with a family when the checkpoint has none */
    bool tools;                /* renders tool definitions */
    bool tool_calls_xml;       /* <function=...> rather than JSON */
    bool thinking;             /* the model reasons: its generation prompt opens, or can open, <think> */
    bool thinking_switch;      /* and enable_thinking changes that */
    bool thinking_default;     /* on when nothing is said */
    bool effort;               /* reasoning_effort changes the prompt */
    bool preserve_thinking;    /* knows preserve_thinking */
    const char *text;          /* the template; lives as long as the engine */
} swl_template_info;
SWL_API void swl_template_info_get(const swl_engine *e, swl_template_info *out);

typedef enum swl_think { SWL_THINK_DEFAULT, SWL_THINK_OFF, SWL_THINK_ON, SWL_THINK_LOW, SWL_THINK_MEDIUM,
                         SWL_THINK_HIGH } swl_think;

typedef enum swl_event_kind {
    SWL_EVENT_START,           /* the request is being worked on; n_done of n_total prompt tokens were found computed */
    SWL_EVENT_PROGRESS,        /* n_done of n_total prompt tokens are computed */
    SWL_EVENT_TOKEN,           /* with logprobs: one token, before its text */
    SWL_EVENT_REASONING,       /* text: a delta */
    SWL_EVENT_TEXT,            /* text: a delta of the answer */
    SWL_EVENT_CALL_BEGIN,      /* text: the name; call, call_id */
    SWL_EVENT_CALL_ARGS,       /* text: a delta of the arguments' JSON text */
    SWL_EVENT_CALL_END,        /* text: all of the arguments; `broken`: cut or ill-formed, its source follows as TEXT: whoever
                                  can still take the call back should */
    SWL_EVENT_FINISH           /* the last one, always: finish, usage, and err where an error ended it */
} swl_event_kind;

typedef struct swl_token_logprob {
    int32_t id;
    float logprob;             /* of the model's own distribution, before penalties, filters and temperature */
} swl_token_logprob;

typedef struct swl_usage {
    int32_t n_prompt, n_cached, n_generated, n_reasoning; /* n_cached: of n_prompt, not computed again */
    double queue_seconds, prompt_seconds, generate_seconds;
    double first_token_seconds;/* from submission */
    uint64_t expert_hits, expert_misses, expert_bytes_read; /* of the passes it took part in */
} swl_usage;

typedef struct swl_event {
    swl_event_kind kind;
    const char *text;          /* whole UTF-8 characters, not NUL-terminated; valid during the callback */
    size_t n_bytes;
    int32_t call;              /* index from 0 */
    const char *call_id;       /* "call_" and 24 letters and digits; the same until FINISH */
    bool broken;
    int32_t n_done, n_total;
    bool prompt;               /* TOKEN of the prompt (prompt_logprobs); its first token has no logprob (NAN) */
    bool reasoning;            /* TOKEN within reasoning */
    swl_token_logprob token;
    const swl_token_logprob *top; /* [n_top] the likeliest, best first */
    int32_t n_top;
    swl_finish finish;
    const char *stop;          /* FINISH by a stop string: which; else NULL */
    const swl_usage *usage;
    const swl_error *error;    /* FINISH: NULL when nothing failed */
} swl_event;

typedef struct swl_logit_bias { int32_t id; float bias; } swl_logit_bias;

/* What the answer (after the reasoning) has to be. */
typedef enum swl_constraint {
    SWL_CONSTRAIN_NONE,
    SWL_CONSTRAIN_JSON,        /* any JSON object */
    SWL_CONSTRAIN_SCHEMA,      /* JSON that a JSON schema allows: `constraint` is the schema */
    SWL_CONSTRAIN_CHOICE,      /* one of the strings of a JSON array: `constraint` */
    SWL_CONSTRAIN_TOOL         /* a call of one of the tools, or of the one named by `constraint` */
} swl_constraint;

typedef struct swl_request_options {
    /* The prompt: messages, */
    const char *messages;      /* JSON array as in Chat Completions: role, content, reasoning_content, tool_calls, ... */
    const char *tools;         /* JSON array of {"type":"function","function":{...}}, or NULL */
    const char *template_vars; /* JSON object: more variables of the template, strongest; NULL */
    swl_think think;
    bool continue_final;       /* the last message is an assistant's, to be continued */
    /* or text as it is (added tokens are matched), or ids. Exactly one of the three. */
    const char *text;
    const int32_t *ids;
    int32_t n_ids;

    int32_t n_max;             /* tokens to generate; < 0: to the context's end; 0: the prompt alone */
    int32_t n_min;             /* stop tokens are not drawn before */
    swl_sampling sampling;
    bool ignore_stop;
    const char *const *stop;   /* [n_stop] strings that end the answer and are not part of it */
    int32_t n_stop;
    const swl_logit_bias *bias;/* [n_bias] added to logits */
    int32_t n_bias;
    bool logprobs;             /* TOKEN events, with */
    int32_t n_top;             /* so many of the likeliest, at most 20 */
    bool prompt_logprobs;      /* for the prompt's tokens too: nothing of it is taken from earlier conversations */
    swl_constraint constrain;
    const char *constraint;
    const char *allowed;       /* only these tools are called: JSON array of their names; NULL: all. Once a call begins, nothing
                                  but calls follows */
    bool no_calls;             /* tools stay in the prompt, but none is called */
    bool one_call;             /* generation ends with the first call */
    bool raw;                  /* no parsing: everything is TEXT. Always so for text and ids */
    int32_t n_reasoning_max;   /* reasoning is closed after so many tokens; 0: never */
    /* false cancels. Called by the thread that steps; must not block, and not call swl_engine_step. */
    bool (*on_event)(void *arg, const swl_event *event);
    void *arg;
} swl_request_options;

SWL_API void swl_request_options_init(swl_request_options *opt);
/* Checks everything, renders, tokenises. All that opt points to is copied. SWL_E_ARG: the template or a limit refuses the
 * messages; SWL_E_BUDGET: the prompt is longer than the context (*out is then made all the same, for its figures, and can
 * only be freed); SWL_E_UNSUPPORTED: a schema keyword, named. */
SWL_API swl_status swl_request_create(swl_request **out, swl_engine *e, const swl_request_options *opt, swl_error *err);
SWL_API void swl_request_free(swl_request *r); /* before submission or after FINISH; NULL is allowed */
SWL_API int32_t swl_request_n_prompt(const swl_request *r);
SWL_API const int32_t *swl_request_prompt(const swl_request *r); /* [n_prompt] as tokenised anew */
SWL_API const char *swl_request_text(const swl_request *r);  /* the rendered prompt; NULL when it was given as ids */

/* Puts a request in line, first come first served. Its events come until FINISH. */
SWL_API swl_status swl_engine_submit(swl_engine *e, swl_request *r, swl_error *err);
/* Ends it at the next pass, or in the middle of one when it runs alone; FINISH still comes. What was generated stays. From any
 * thread or signal handler. */
SWL_API void swl_request_cancel(swl_request *r);
/* Ends its reasoning: the answer begins with the next token. */
SWL_API void swl_request_end_reasoning(swl_request *r);

/* Runs one pass for all that is in line: a token for each answer, and a part of a prompt between them. *busy: there is more
 * to do. An error that concerns one request goes to its FINISH; what is returned concerns the engine. */
SWL_API swl_status swl_engine_step(swl_engine *e, bool *busy, swl_error *err);
/* Sleeps until there is something to do, for at most `milliseconds` (< 0: for ever), or until swl_engine_wake. */
SWL_API void swl_engine_wait(swl_engine *e, int32_t milliseconds);
SWL_API void swl_engine_wake(swl_engine *e);

/* One conversation that is kept for reuse. */
typedef struct swl_slot_info {
    bool running;
    int32_t n_tokens, n_marks, ctx_tokens;
    double last_used_seconds;  /* ago */
} swl_slot_info;
typedef struct swl_engine_stats {
    int32_t n_running, n_waiting, n_slots;
    uint64_t n_prompt, n_cached, n_generated; /* tokens, ever */
    uint64_t hits_memory, hits_disk, n_evicted; /* conversations found again, and dropped */
    uint64_t disk_bytes;
} swl_engine_stats;
/* Never wait for a pass to end. slots: room for n_slots of them, filled as far as there are; NULL is allowed. */
SWL_API void swl_engine_stats_get(swl_engine *e, swl_engine_stats *out, swl_slot_info *slots, int32_t n_slots);

/* A conversation in memory by hand, by its number in swl_engine_stats_get: to and from a file of session_dir, under a plain
 * name: letters, digits, '.', '_' and '-', at most 100, no dot at the beginning, no ".session" at the end. Such files stay until
 * they are erased; saving is refused (SWL_E_BUDGET) where together they would be more than session_dir_bytes. What a slot held
 * before is kept like all that leaves memory. All wait for the pass that runs; SWL_E_ARG: a request uses the slot;
 * SWL_E_UNSUPPORTED: there is no session_dir. From any thread. */
typedef struct swl_slot_file {
    int32_t n_tokens;
    uint64_t bytes;
} swl_slot_file;
SWL_API swl_status swl_engine_slot_save(swl_engine *e, int32_t slot, const char *name, swl_slot_file *out, swl_error *err);
/* The same in two steps: begin writes what the slot holds now; end waits for the disk, which passes need not wait for, and gives
 * the file its name. What begin handed out (*out, NULL on an error) has to be ended, once, before the engine is closed. */
typedef struct swl_slot_saving swl_slot_saving;
SWL_API swl_status swl_engine_slot_save_begin(swl_slot_saving **out, swl_engine *e, int32_t slot, const char *name,
                                              swl_slot_file *file, swl_error *err);
SWL_API swl_status swl_engine_slot_save_end(swl_slot_saving *saving, swl_error *err);
SWL_API swl_status swl_engine_slot_restore(swl_engine *e, int32_t slot, const char *name, swl_slot_file *out, swl_error *err);
/* Forgets the conversation in memory, which had *n_tokens. */
SWL_API swl_status swl_engine_slot_erase(swl_engine *e, int32_t slot, int32_t *n_tokens, swl_error *err);
/* Removes a file that was saved by hand, of *bytes. */
SWL_API swl_status swl_engine_file_erase(swl_engine *e, const char *name, uint64_t *bytes, swl_error *err);

/* ---- chat: one conversation ------------------------------------------------------------------------------------------ */

/* A list of messages with the answers that the engine gives to them. One thread at a time, except swl_chat_cancel. */
typedef struct swl_chat swl_chat;

SWL_API swl_status swl_chat_create(swl_chat **out, swl_engine *e, swl_error *err);
SWL_API void swl_chat_free(swl_chat *c);
/* Role: "system", "user", "assistant", "tool". */
SWL_API swl_status swl_chat_add(swl_chat *c, const char *role, const char *content, swl_error *err);
/* A message as in Chat Completions: {"role":...,"content":...,"tool_call_id":...}. */
SWL_API swl_status swl_chat_add_json(swl_chat *c, const char *message, swl_error *err);
SWL_API int32_t swl_chat_n_messages(const swl_chat *c);
/* All messages as a JSON array: free with swl_free. NULL: out of memory. */
SWL_API char *swl_chat_messages(const swl_chat *c);
/* Keeps the first n messages: to edit one, or to answer again. */
SWL_API void swl_chat_truncate(swl_chat *c, int32_t n);
/* A second conversation with the same messages. */
SWL_API swl_status swl_chat_fork(swl_chat **out, const swl_chat *c, swl_error *err);
/* Answers: `opt` without a prompt (tools, template_vars, sampling, on_event, ...); steps the engine until the answer is there
 * and appends it as a message, also when it was cancelled or cut. usage and finish may be NULL. If another thread steps the
 * engine, this one waits for it. */
SWL_API swl_status swl_chat_answer(swl_chat *c, const swl_request_options *opt, swl_usage *usage, swl_finish *finish,
                                   swl_error *err);
/* Stops the running answer, from any thread or signal handler. */
SWL_API void swl_chat_cancel(swl_chat *c);
/* Messages, and the state that was computed for them, to a file and back: atomically, checked when read. A file of another
 * model still gives the messages (SWL_OK, *state_kept false): they are computed anew. state_kept may be NULL. */
SWL_API swl_status swl_chat_save(const swl_chat *c, const char *path, swl_error *err);
SWL_API swl_status swl_chat_load(swl_chat *c, const char *path, bool *state_kept, swl_error *err);

/* ---- checking against a reference --------------------------------------------------------------------------------- */

/* One compared tensor: "embed", "layer_00", ..., "final_norm", "logits", "greedy". */
typedef struct swl_verify_row {
    const char *name;
    double diff_max;           /* largest |ours - reference|; for "greedy" the number of differing tokens */
    double ref_max;            /* largest |reference| */
    bool ok;
} swl_verify_row;

/* Runs the model on input_ids of a safetensors file and compares what the file holds, in the order of the layers.
 * Returns SWL_E_MISMATCH when a row is over the tolerance (err names the first bad one), after all rows. */
SWL_API swl_status swl_verify(swl_model *m, const char *reference, double tolerance,
                              void (*on_row)(void *arg, const swl_verify_row *row), void *arg, swl_error *err);

/* ---- getting models ----------------------------------------------------------------------------------------------- */

/*
 * swl_pull brings a model from a hub, a mirror or a directory into a .qpack: containers are copied, MLX and Hugging Face
 * checkpoints and GGUF files are converted while they arrive, without being stored. What is there when it stops, for
 * whatever reason, stays in NAME.qpack.partial, and the next call goes on from it. The target appears under its name
 * complete and checked.
 */

typedef enum swl_pull_phase {
    SWL_PULL_PLAN, SWL_PULL_FETCH, SWL_PULL_CONVERT, SWL_PULL_VERIFY, SWL_PULL_FINISH
} swl_pull_phase;
SWL_API const char *swl_pull_phase_name(swl_pull_phase phase); /* "fetch". Static storage. */

/* What becomes of a file of the source. */
typedef enum swl_pull_action { SWL_PULL_HAVE, SWL_PULL_RESUME, SWL_PULL_FRESH, SWL_PULL_CONVERTED } swl_pull_action;

typedef struct swl_pull_file {
    const char *path;
    uint64_t size, have;       /* bytes; those that are there */
    const char *digest;        /* "sha256:..."; "" when the source publishes none */
    swl_pull_action action;
} swl_pull_file;

typedef struct swl_pull_plan {
    const char *source;        /* "org/name", a URL, a directory */
    const char *commit;        /* NULL when the source has none */
    const char *kind;          /* "qpack", "mlx", "hf", "gguf" */
    const char *target;
    const swl_pull_file *files;/* [n_files] */
    int32_t n_files;
    uint64_t bytes_total, bytes_left;   /* to receive; of a source on this machine, to read */
    bool local;                /* the source is on this machine */
    uint64_t result_bytes;     /* of the container */
    uint64_t disk_needed, disk_free;
    uint64_t dense_bytes;      /* kept in memory when the model runs; 0: unknown yet */
    int32_t n_left_out;        /* tensors of the source that have no place in the container */
} swl_pull_plan;

typedef enum swl_pull_event_kind {
    SWL_PULL_PROGRESS, SWL_PULL_STALL, SWL_PULL_RETRY,
    SWL_PULL_NOTE,             /* something to know: a changed commit, a source without hashes */
    SWL_PULL_WAITING           /* another process works on the same target */
} swl_pull_event_kind;

typedef struct swl_pull_event {
    swl_pull_event_kind kind;
    swl_pull_phase phase;
    const char *file;          /* being worked on; NULL: none in particular */
    uint64_t done, total;      /* bytes of the phase */
    const char *text;          /* of all kinds but PROGRESS */
} swl_pull_event;

typedef struct swl_pull_options {
    const char *source;        /* "org/name", "hf://org/name@rev", "org/name:FILE.gguf", "https://host/path/" or ".../FILE.gguf",
                                * or a directory or GGUF file */
    const char *target;        /* NAME.qpack */
    const char *revision;      /* branch, tag or commit; NULL: "main" */
    const char *endpoint;      /* of the hub; NULL: https://huggingface.co */
    const char *token;         /* sent to the endpoint and nowhere else; NULL: none */
    const char *proxy, *no_proxy, *ca_file; /* NULL: none; the system's certificates */
    const char *const *mirrors;/* [n_mirrors] places that have the same files; the hub then only says what is right */
    int32_t n_mirrors;
    const char *const *include, *const *exclude; /* patterns with * and ? that narrow the files of a packed source */
    int32_t n_include, n_exclude;
    const char *const *cache_roots; /* [n_cache_roots] hub caches to read from */
    int32_t n_cache_roots;
    const char *sha256;        /* of hashes.json, in hex: pins the whole container; NULL: not pinned */
    bool require_hashes;       /* a source that publishes no digests is refused */
    bool replace;              /* a target of another source is replaced once the new one is complete */
    bool adopt;                /* take over what another program left unfinished in the target, as far as digests hold */
    bool force;                /* also without enough free space */
    bool no_wait;              /* fail when another process works on the target */
    bool offline;              /* open no connection */
    bool dry_run;              /* plan only */
    int32_t n_streams;         /* 1 to 8 */
    uint64_t part_bytes;       /* of large files at a time; the state is saved as often */
    int32_t bits, group;       /* of a conversion, as in swl_repack_options */
    const char *recipe;        /* likewise; NULL: none */
    bool minmax, exact_scales; /* likewise */
    bool keep_source;          /* of a conversion: the original files stay in the container's folder .source */
    double connect_seconds, stall_seconds, retry_seconds; /* 10; 30 without a byte; 1 before the first retry, then 2, 4, ... */
    const volatile int *cancel;/* not 0: stop within a second, keep what is there; may be set by a signal handler */
    void (*on_plan)(void *arg, const swl_pull_plan *plan);
    void (*on_event)(void *arg, const swl_pull_event *event); /* at least every half second, also during stalls */
    void *arg;
} swl_pull_options;

typedef struct swl_pull_result {
    bool already;              /* it was installed, nothing was done */
    char commit[72];           /* "" when the source has none */
    char way[16];              /* "copied", "converted"; "" when nothing was done */
    char verified_by[16];      /* weakest check of any file: "sha256", "git-sha1", "size", "local" */
    uint64_t bytes_received, result_bytes;
    double seconds;
} swl_pull_result;

SWL_API void swl_pull_options_init(swl_pull_options *opt);
/* result may be NULL. */
SWL_API swl_status swl_pull(const swl_pull_options *opt, swl_pull_result *result, swl_error *err);

/* What is wrong, or right, with one file of an installed container. */
typedef struct swl_check_row {
    const char *path;
    bool ok;
    int32_t slot;              /* of a file of experts, when it is known which is bad; else -1 */
    const char *tensor;        /* of a safetensors file, likewise; else NULL */
    const char *by;            /* what it was compared with: "sha256", "git-sha1", "crc32c", "length", "json", "source" */
    const char *text;          /* of faults: what was found and expected */
} swl_check_row;

typedef struct swl_check_options {
    const char *dir;
    int32_t n_threads;         /* 0: as many as the process may run on */
    const swl_pull_options *source; /* a place to compare with beside what the container itself says: its source, revision,
                                * endpoint, token and what a connection needs count; NULL: none */
    bool write_hashes;         /* instead: write hashes.json over what is there, for publishing */
    const volatile int *cancel;
    /* Called from one thread at a time. Faults come before the row of their file. */
    void (*on_row)(void *arg, const swl_check_row *row);
    void (*on_progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
} swl_check_options;

SWL_API void swl_check_options_init(swl_check_options *opt);
/* Lengths, hashes.json, the source's digests, checksums of slots and tensors, JSON files, and whether it opens. Changes
 * nothing. A link to the container is followed, links inside it are not. SWL_E_CORRUPT after all rows when something is bad;
 * *err then names the first. */
SWL_API swl_status swl_check(const swl_check_options *opt, swl_error *err);

/* Fetches these files of the container opt->target (or that it is a link to) anew, from opt->source, or else from where its
 * record says it came, and puts each in its place once it is checked. Of a container that was converted all is made anew.
 * Without paths it only removes what a repair left that was ended in the middle. */
SWL_API swl_status swl_repair(const swl_pull_options *opt, const char *const *paths, int32_t n_paths, swl_error *err);

/* ---- conversion ------------------------------------------------------------------------------------------------- */

typedef struct swl_repack_options {
    const char *source;        /* directory: MLX or Hugging Face checkpoint; or a GGUF file, of a split one any part */
    const char *output;        /* NAME.qpack; must not exist unless replace */
    int32_t bits;              /* for unquantised sources: 4 (default) or 8; router and shared gate always 8 */
    int32_t group;             /* 64 (default), 32, 128 */
    const char *recipe;        /* for unquantised sources, instead of bits: mixed_2_6, mixed_3_4, mixed_3_6, mixed_4_6; else NULL */
    bool minmax;               /* scales from the ends of each group's range, as MLX does, instead of the least error */
    bool exact_scales;         /* for GGUF: scales that are products in float32 instead of float16 */
    bool replace;
    bool force;                /* also without enough free space */
    bool dry_run;              /* plan only */
    bool *already;             /* set when the output is of the same conversion, which then is no error; NULL: it is one */
    bool (*on_progress)(void *arg, uint64_t bytes_done, uint64_t bytes_total); /* false: stop; may be NULL */
    void (*on_plan)(void *arg, const swl_pull_plan *plan); /* may be NULL */
    /* While another process writes the output: who that is, in a sentence, a few times a second. false: stop. NULL: that it is
     * being written is an error. */
    bool (*on_wait)(void *arg, const char *text);
    void *arg;
} swl_repack_options;

SWL_API void swl_repack_options_init(swl_repack_options *opt);
/* Writes a complete .qpack or nothing: the output appears under its name only when all of it is on disk. */
SWL_API swl_status swl_repack(const swl_repack_options *opt, swl_error *err);

/* Writes one module ("lm_head", "model.layers.0.linear_attn.in_proj_qkv", "model.layers.0.mlp.experts.3.up_proj") as a
 * safetensors file with one float32 tensor of that name: dequantised, else as it is stored. Modules with packed words are those
 * of the family. */
SWL_API swl_status swl_dump_tensor(const char *dir, const char *module, const char *output, swl_error *err);

/* ---- measurements ----------------------------------------------------------------------------------------------- */

/* What a forward pass spends its time on. */
typedef enum swl_phase {
    SWL_PHASE_OTHER,           /* embedding, norms of the residual stream, adding up */
    SWL_PHASE_PROJECTIONS,     /* into and out of the mixers */
    SWL_PHASE_DELTA, SWL_PHASE_ATTENTION, SWL_PHASE_ROUTER,
    SWL_PHASE_EXPERTS,         /* routed, shared and dense feed-forward */
    SWL_PHASE_HEAD,
    SWL_PHASE_WAITING,         /* for experts from the drive, with nothing left to compute */
    SWL_PHASE_COUNT
} swl_phase;

/* Sums over the forward passes since swl_profile_start. Bytes are what the passes cannot do without, each counted once a
 * pass however many tokens use it. */
typedef struct swl_profile {
    uint64_t n_passes, n_tokens;
    uint64_t dense_bytes;      /* weights outside the routed experts, the head only where logits were wanted */
    uint64_t expert_bytes;     /* routed experts that were used */
    uint64_t state_bytes;      /* recurrent state, read and written */
    uint64_t kv_bytes;         /* keys and values read */
    uint64_t multiply_adds;    /* of weights with activations */
    uint64_t wait_ns;          /* like SWL_PHASE_WAITING, also without phases */
    uint64_t ns;               /* inside forward passes */
    uint64_t phase_ns[SWL_PHASE_COUNT];
} swl_profile;

/* Begins to count anew; with `phases` also the time of each phase, by two readings of the clock around it. */
SWL_API void swl_profile_start(swl_model *m, bool phases);
SWL_API void swl_profile_get(swl_model *m, swl_profile *out);
SWL_API const char *swl_phase_name(swl_phase phase); /* "projections". Static storage. */

typedef struct swl_machine_rates {
    double memory_read;        /* bytes a second, all of the model's threads, far beyond the caches; 0: not measured, because the
                                  dense weights are small and the budget leaves no room for a block of 64 MiB */
    double int8_multiply_add;  /* a second, all of the model's threads, in the instructions of its kernels */
} swl_machine_rates;

/* Takes about a second. */
SWL_API swl_status swl_machine_measure(swl_model *m, swl_machine_rates *out, swl_error *err);
/* Reads experts at random places of the model's files, n_in_flight (1 to 64) at any time until about n_bytes have come, past
 * the system's cache: bytes a second. Drives give more for a moment than they do for long, and what others leave changes, so
 * measure as much as what is to be compared reads, in turn with it. 0: nothing is read of this model. */
SWL_API swl_status swl_drive_measure(swl_model *m, int32_t n_in_flight, uint64_t n_bytes, double *bytes_per_second,
                                     swl_error *err);

/* What passes do: for measurements of single tokens and prompts alike. */
typedef enum swl_passes {
    SWL_PASSES_WHOLE,
    SWL_PASSES_COMPUTE,        /* nothing is read: in the place of experts that are not in memory others are used, and what is
                                  in memory stays. The result means nothing. */
    SWL_PASSES_READ            /* the experts are read, layer by layer, and nothing is computed: their choice must not be the
                                  router's. The result is what was in its place. */
} swl_passes;
/* From the next pass on. */
SWL_API void swl_passes_set(swl_model *m, swl_passes passes);

/* What a machine is, without a model. */
typedef struct swl_machine_info {
    char cpu_level[16];
    int32_t n_cpus;            /* that this process may use */
    uint64_t memory_total, memory_available;
    uint64_t group_limit, group_used; /* of the cgroup that holds the process; 0: no limit */
    uint64_t memory_budget;    /* what a model gets when nothing is said */
    uint64_t disk_free;        /* where the folder lies */
    double memory_read;        /* bytes a second; 0: not measured */
    double drive_read, drive_write;
    uint64_t drive_read_bytes; /* one read */
    bool drive_direct;         /* past the page cache */
} swl_machine_info;

/* `measure`: also memory and the drive under `dir` (NULL: no drive), which takes some seconds and, for that time, 256 MiB of
 * the drive. *out is filled as far as it got, also on an error. */
SWL_API swl_status swl_machine_look(const char *dir, bool measure, swl_machine_info *out, swl_error *err);

/* Whose word counts on which experts a token goes to. Random weights route like no text does; so that measurements mean
 * something, the choice can be replaced (the router still runs and its weights are used). */
typedef enum swl_routes {
    SWL_ROUTES_MODEL,          /* the router's */
    SWL_ROUTES_UNIFORM,        /* every token and layer: experts drawn evenly */
    SWL_ROUTES_SAME            /* the same, but all tokens of a pass go to the same experts */
} swl_routes;
SWL_API void swl_routes_set(swl_model *m, swl_routes routes, uint64_t seed);

/* Which experts tokens went to, layer by layer. */
typedef struct swl_route_log swl_route_log;

/* How a made-up log repeats itself. In each layer, each of a token's experts is with probability `repeat` one of the token
 * before, else drawn from a set of `active` experts, the r-th of which is drawn in proportion to 1 / (r + 1)^zipf; one
 * member of the set is exchanged every `drift` tokens. */
typedef struct swl_route_model {
    int32_t n_layers, n_experts, k, n_tokens;
    double repeat, zipf;
    int32_t active, drift;
    uint64_t seed;
} swl_route_model;

/* Fitted so that plain recency hits as often as was measured with real text on a 35B model (256 experts, 8 a token, 40
 * layers, slots of 1.77 MB): 56 % with 2 GB, 65 % with 3 GB, 83.5 % with 5 GB. Figures that come from it are to be called
 * "synthetic routes". The shape is the caller's. */
SWL_API void swl_route_model_init(swl_route_model *r, int32_t n_layers, int32_t n_experts, int32_t k, int32_t n_tokens);
SWL_API swl_status swl_route_log_generate(swl_route_log **out, const swl_route_model *r, swl_error *err);
SWL_API swl_status swl_route_log_load(swl_route_log **out, const char *path, swl_error *err);
SWL_API swl_status swl_route_log_save(const swl_route_log *log, const char *path, swl_error *err);
SWL_API void swl_route_log_free(swl_route_log *log);

typedef struct swl_route_log_info {
    int32_t n_layers, n_experts, k;
    int64_t n_tokens, n_passes;
} swl_route_log_info;
SWL_API void swl_route_log_info_get(const swl_route_log *log, swl_route_log_info *out);

/* From the next pass on, writes the experts of every token to a file (truncated first); NULL ends it. */
SWL_API swl_status swl_routes_record(swl_model *m, const char *path, swl_error *err);
/* From the next pass on, tokens go to the experts of the log, over and over; NULL: back to the router's choice. The log is
 * borrowed until then. SWL_E_MISMATCH when its shape is not the model's. */
SWL_API swl_status swl_routes_replay(swl_model *m, const swl_route_log *log, swl_error *err);

/* What a pool of `slots` experts per layer would have done. */
typedef struct swl_cache_result {
    uint64_t n_hits, n_misses; /* experts of passes: one access however many tokens of a pass use it */
    uint64_t n_streamed;       /* misses that were not given a place */
} swl_cache_result;
SWL_API swl_status swl_cache_simulate(const swl_route_log *log, const char *policy, int32_t slots, swl_cache_result *out,
                                      swl_error *err);
SWL_API const char *swl_cache_policy_name(int32_t i); /* "hybrid", ...; NULL past the end. The first is the default. */

/* A container with the exact shapes of a known model and random weights, so that speed can be measured without it. */
typedef struct swl_synthetic_options {
    const char *name;          /* "qwen3.6-35b", ...: see swl_synthetic_name; "qwen3.6-35b/8": its first 8 layers alone */
    const char *output;        /* NAME.qpack; must not exist unless replace */
    uint64_t seed;             /* equal seeds give equal bytes; at most 2^63 - 1 */
    bool experts_absent;       /* the experts' files stay empty and take no room: opening the model makes their bytes in
                                  memory, which must hold all of them */
    bool shapes_only;          /* a checkpoint without content at `output`, for swl_memory_plan_make and describe_only alone:
                                  config.json and model.safetensors, which takes no room */
    uint64_t leave_free;       /* bytes of the disk to leave alone beside what is written */
    bool replace;
    bool (*on_progress)(void *arg, uint64_t bytes_done, uint64_t bytes_total); /* false: stop; may be NULL */
    void *arg;
} swl_synthetic_options;

SWL_API void swl_synthetic_options_init(swl_synthetic_options *opt);
/* Writes a complete .qpack or nothing, like swl_repack. It holds no tokenizer: a session takes ids. */
SWL_API swl_status swl_synthetic_create(const swl_synthetic_options *opt, swl_error *err);
/* The known names, i from 0; NULL past the last. Static storage. */
SWL_API const char *swl_synthetic_name(int32_t i);

#ifdef __cplusplus
}
#endif
#endif
