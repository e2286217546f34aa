/*
 * builtin.c: chat templates for checkpoints that come without one: the rules of the families, for messages in the form
 * that messages.c makes. Official texts differ in details (tests/text/templates follows them); a checkpoint's own
 * always wins.
 */
#include <ctype.h>
#include <string.h>

#include "chat/engine.h"

/* clang-format off */
static const char qwen3_5[] =
    "{%- set system_text = messages[0].content|trim if messages[0].role == 'system' else '' %}\n"
    "{%- if tools %}\n"
    "    {{- '<|im_start|>system\\n# Tools\\n\\nYou have access to the following functions:\\n\\n<tools>' }}\n"
    "    {%- for tool in tools %}{{- '\\n' ~ (tool | tojson) }}{%- endfor %}\n"
    "    {{- '\\n</tools>\\n\\nIf you choose to call a function ONLY reply in the following format with NO s"
    "uffix:\\n\\n<tool_call>\\n<function=example_function_name>\\n<parameter=example_parameter_1>\\nvalue_1\\n<"
    "/parameter>\\n<parameter=example_parameter_2>\\nThis is the value for the second parameter\\nthat can s"
    "pan\\nmultiple lines\\n</parameter>\\n</function>\\n</tool_call>\\n\\n<IMPORTANT>\\nReminder:\\n- Function c"
    "alls MUST follow the specified format: an inner <function=...></function> block must be nested withi"
    "n <tool_call></tool_call> XML tags\\n- Required parameters MUST be specified\\n- You may provide optio"
    "nal reasoning for your function call in natural language BEFORE the function call, but NOT after\\n- "
    "If there is no function call available, answer the question like normal with your current knowledge "
    "and do not tell the user about function calls\\n</IMPORTANT>' }}\n"
    "    {%- if system_text %}{{- '\\n\\n' + system_text }}{%- endif %}\n"
    "    {{- '<|im_end|>\\n' }}\n"
    "{%- elif messages[0].role == 'system' %}\n"
    "    {{- '<|im_start|>system\\n' + system_text + '<|im_end|>\\n' }}\n"
    "{%- endif %}\n"
    "{%- set ns = namespace(query=-1) %}\n"
    "{%- for message in messages %}\n"
    "    {%- set text = message.content|trim %}\n"
    "    {%- if message.role == 'user' and not (text.startswith('<tool_response>') and text.endswith('</t"
    "ool_response>')) %}\n"
    "        {%- set ns.query = loop.index0 %}\n"
    "    {%- endif %}\n"
    "{%- endfor %}\n"
    "{%- if ns.query < 0 %}{{- raise_exception('No user query found in messages.') }}{%- endif %}\n"
    "{%- for message in messages %}\n"
    "    {%- set content = message.content|trim %}\n"
    "    {%- if message.role == 'user' %}\n"
    "        {{- '<|im_start|>user\\n' + content + '<|im_end|>\\n' }}\n"
    "    {%- elif message.role == 'assistant' %}\n"
    "        {%- set thought = '' %}\n"
    "        {%- if message.reasoning_content is string %}\n"
    "            {%- set thought = message.reasoning_content %}\n"
    "        {%- elif '</think>' in content %}\n"
    "            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip("
    "'\\n') %}\n"
    "            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}\n"
    "        {%- endif %}\n"
    "        {{- '<|im_start|>assistant\\n' }}\n"
    "        {%- if loop.index0 > ns.query or (preserve_thinking is defined and preserve_thinking is true"
    ") %}\n"
    "            {{- '<think>\\n' + thought|trim + '\\n</think>\\n\\n' }}\n"
    "        {%- endif %}\n"
    "        {{- content }}\n"
    "        {%- for call in message.tool_calls or [] %}\n"
    "            {{- ('\\n\\n' if content else '') if loop.first else '\\n' }}\n"
    "            {{- '<tool_call>\\n<function=' + call.function.name + '>\\n' }}\n"
    "            {%- for key, val in call.function.arguments|items %}\n"
    "                {{- '<parameter=' + key + '>\\n' + (val if val is string else val | tojson) + '\\n</pa"
    "rameter>\\n' }}\n"
    "            {%- endfor %}\n"
    "            {{- '</function>\\n</tool_call>' }}\n"
    "        {%- endfor %}\n"
    "        {{- '<|im_end|>\\n' }}\n"
    "    {%- elif message.role == 'tool' %}\n"
    "        {%- if loop.previtem and loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %"
    "}\n"
    "        {{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}\n"
    "        {%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}\n"
    "    {%- endif %}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "    {{- '<|im_start|>assistant\\n' }}\n"
    "    {{- '<think>\\n\\n</think>\\n\\n' if enable_thinking is defined and enable_thinking is false else '<"
    "think>\\n' }}\n"
    "{%- endif %}";

/* What both forms of Qwen3-Next have: the system block, and calls and their results. */
#define NEXT_SYSTEM \
    "{%- if tools %}\n" \
    "    {{- '<|im_start|>system\\n' + (messages[0].content + '\\n\\n' if messages[0].role == 'system' else " \
    "'') }}\n" \
    "    {{- '# Tools\\n\\nYou may call one or more functions to assist with the user query.\\n\\nYou are pro" \
    "vided with function signatures within <tools></tools> XML tags:\\n<tools>' }}\n" \
    "    {%- for tool in tools %}{{- '\\n' + tool | tojson }}{%- endfor %}\n" \
    "    {{- '\\n</tools>\\n\\nFor each function call, return a json object with function name and arguments" \
    " within <tool_call></tool_call> XML tags:\\n<tool_call>\\n{\"name\": <function-name>, \"arguments\": <args" \
    "-json-object>}\\n</tool_call><|im_end|>\\n' }}\n" \
    "{%- elif messages[0].role == 'system' %}\n" \
    "    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}\n" \
    "{%- endif %}\n"
#define NEXT_CALLS_AND_RESULTS \
    "        {%- for call in message.tool_calls or [] %}\n" \
    "            {%- if not loop.first or content %}{{- '\\n' }}{%- endif %}\n" \
    "            {{- '<tool_call>\\n{\"name\": \"' + call.function.name + '\", \"arguments\": ' }}\n" \
    "            {{- call.function.arguments if call.function.arguments is string else call.function.argu" \
    "ments|tojson }}\n" \
    "            {{- '}\\n</tool_call>' }}\n" \
    "        {%- endfor %}\n" \
    "        {{- '<|im_end|>\\n' }}\n" \
    "    {%- elif message.role == 'tool' %}\n" \
    "        {%- if loop.first or loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}\n" \
    "        {{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}\n" \
    "        {%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}\n" \
    "    {%- endif %}\n" \
    "{%- endfor %}\n"

static const char next_instruct[] =
    NEXT_SYSTEM
    "{%- for message in messages %}\n"
    "    {%- set content = message.content %}\n"
    "    {%- if message.role == 'user' %}\n"
    "        {{- '<|im_start|>user\\n' + content + '<|im_end|>\\n' }}\n"
    "    {%- elif message.role == 'assistant' %}\n"
    "        {{- '<|im_start|>assistant\\n' }}\n"
    "        {{- content }}\n"
    NEXT_CALLS_AND_RESULTS
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

static const char next_thinking[] =
    NEXT_SYSTEM
    "{%- set ns = namespace(query=messages|length - 1, found=false) %}\n"
    "{%- for message in messages|reverse %}\n"
    "    {%- if not ns.found and message.role == 'user' and not (message.content.startswith('<tool_respon"
    "se>') and message.content.endswith('</tool_response>')) %}\n"
    "        {%- set ns.found = true %}\n"
    "        {%- set ns.query = messages|length - loop.index %}\n"
    "    {%- endif %}\n"
    "{%- endfor %}\n"
    "{%- for message in messages %}\n"
    "    {%- set content = message.content %}\n"
    "    {%- if message.role == 'user' %}\n"
    "        {{- '<|im_start|>user\\n' + content + '<|im_end|>\\n' }}\n"
    "    {%- elif message.role == 'assistant' %}\n"
    "        {{- '<|im_start|>assistant\\n' }}\n"
    "        {%- set thought = '' %}\n"
    "        {%- if message.reasoning_content is string %}\n"
    "            {%- set thought = message.reasoning_content %}\n"
    "        {%- elif '</think>' in content %}\n"
    "            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip("
    "'\\n') %}\n"
    "            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}\n"
    "        {%- endif %}\n"
    "        {%- if loop.index0 > ns.query and (loop.last or thought) %}\n"
    "            {{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' }}\n"
    "            {%- set content = content.lstrip('\\n') %}\n"
    "        {%- endif %}\n"
    "        {{- content }}\n"
    NEXT_CALLS_AND_RESULTS
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n' }}{%- endif %}";

static const char coder[] =
    "{%- macro extra_keys(object, known) %}\n"
    "    {%- for key in object if key not in known %}\n"
    "        {{- '\\n<' ~ key ~ '>' ~ (object[key] if object[key] is string else object[key]|tojson) ~ '</"
    "' ~ key ~ '>' }}\n"
    "    {%- endfor %}\n"
    "{%- endmacro %}\n"
    "{%- set has_system = messages[0].role == 'system' %}\n"
    "{%- if has_system or tools %}\n"
    "    {{- '<|im_start|>system\\n' }}\n"
    "    {{- messages[0].content if has_system else 'You are Qwen, a helpful AI assistant that can intera"
    "ct with a computer to solve tasks.' }}\n"
    "    {%- if tools %}\n"
    "        {{- '\\n\\nYou have access to the following functions:\\n\\n<tools>' }}\n"
    "        {%- for tool in tools %}\n"
    "            {%- set f = tool.function if tool.function is defined else tool %}\n"
    "            {{- '\\n<function>\\n<name>' ~ f.name ~ '</name>' }}\n"
    "            {%- if f.description is defined %}{{- '\\n<description>' ~ (f.description | trim) ~ '</de"
    "scription>' }}{%- endif %}\n"
    "            {{- '\\n<parameters>' }}\n"
    "            {%- if f.parameters is mapping and f.parameters.properties is mapping %}\n"
    "                {%- for name, schema in f.parameters.properties|items %}\n"
    "                    {{- '\\n<parameter>\\n<name>' ~ name ~ '</name>' }}\n"
    "                    {%- if schema.type is defined %}{{- '\\n<type>' ~ schema.type ~ '</type>' }}{%- e"
    "ndif %}\n"
    "                    {%- if schema.description is defined %}{{- '\\n<description>' ~ (schema.descripti"
    "on | trim) ~ '</description>' }}{%- endif %}\n"
    "                    {{- extra_keys(schema, ['type', 'description']) }}\n"
    "                    {{- '\\n</parameter>' }}\n"
    "                {%- endfor %}\n"
    "            {%- endif %}\n"
    "            {{- extra_keys(f.parameters, ['type', 'properties']) if f.parameters is mapping }}\n"
    "            {{- '\\n</parameters>' }}\n"
    "            {{- extra_keys(f, ['type', 'name', 'description', 'parameters']) }}\n"
    "            {{- '\\n</function>' }}\n"
    "        {%- endfor %}\n"
    "        {{- '\\n</tools>\\n\\nIf you choose to call a function ONLY reply in the following format with "
    "NO suffix:\\n\\n<tool_call>\\n<function=example_function_name>\\n<parameter=example_parameter_1>\\nvalue_"
    "1\\n</parameter>\\n<parameter=example_parameter_2>\\nThis is the value for the second parameter\\nthat c"
    "an span\\nmultiple lines\\n</parameter>\\n</function>\\n</tool_call>\\n\\n<IMPORTANT>\\nReminder:\\n- Functi"
    "on calls MUST follow the specified format: an inner <function=...></function> block must be nested w"
    "ithin <tool_call></tool_call> XML tags\\n- Required parameters MUST be specified\\n- You may provide o"
    "ptional reasoning for your function call in natural language BEFORE the function call, but NOT after"
    "\\n- If there is no function call available, answer the question like normal with your current knowle"
    "dge and do not tell the user about function calls\\n</IMPORTANT>' }}\n"
    "    {%- endif %}\n"
    "    {{- '<|im_end|>\\n' }}\n"
    "{%- endif %}\n"
    "{%- for message in messages %}\n"
    "    {%- if message.role == 'assistant' and message.tool_calls %}\n"
    "        {{- '<|im_start|>assistant' }}\n"
    "        {%- if message.content|trim %}{{- '\\n' + message.content|trim + '\\n' }}{%- endif %}\n"
    "        {%- for call in message.tool_calls %}\n"
    "            {{- '\\n<tool_call>\\n<function=' + call.function.name + '>\\n' }}\n"
    "            {%- for key, val in call.function.arguments|items %}\n"
    "                {{- '<parameter=' + key + '>\\n' + (val if val is string else val|tojson) + '\\n</para"
    "meter>\\n' }}\n"
    "            {%- endfor %}\n"
    "            {{- '</function>\\n</tool_call>' }}\n"
    "        {%- endfor %}\n"
    "        {{- '<|im_end|>\\n' }}\n"
    "    {%- elif message.role == 'user' or message.role == 'assistant' %}\n"
    "        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}\n"
    "    {%- elif message.role == 'tool' %}\n"
    "        {%- if loop.first or loop.previtem.role != 'tool' %}{{- '<|im_start|>user\\n' }}{%- endif %}\n"
    "        {{- '<tool_response>\\n' + message.content + '\\n</tool_response>\\n' }}\n"
    "        {%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}\n"
    "    {%- endif %}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";
/* clang-format on */

/* Whether the word stands in a path, whatever its case. */
static bool mentions(const char *path, const char *word)
{
    size_t n = strlen(word), i;

    for (; *path; path++) {
        for (i = 0; i < n && tolower((unsigned char)path[i]) == word[i]; i++)
            ;
        if (i == n)
            return true;
    }
    return false;
}

const char *swl_builtin_template(const char *family, const char *dir, const char **name)
{
    if (!strncmp(family, "qwen3_5", 7)) {
        *name = "qwen3_5";
        return qwen3_5;
    }
    if (mentions(dir, "coder")) {
        *name = "qwen3_next, coder";
        return coder;
    }
    *name = mentions(dir, "thinking") ? "qwen3_next, thinking" : "qwen3_next, instruct";
    return mentions(dir, "thinking") ? next_thinking : next_instruct;
}
