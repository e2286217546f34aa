/* chat.h: a conversation's insides. */
#ifndef SWL_CHAT_CHAT_H
#define SWL_CHAT_CHAT_H

#include "chat/engine.h"

struct swl_chat {
    swl_engine *engine;
    json_t *messages;    /* as they were given; a message is never changed once it is in */
    int32_t *ids, n_ids; /* of the prompt and answer that ran last */
    _Atomic bool cancel;
};

#endif
