/* small.h: the endpoints of small.c, for the table of routes. */
#ifndef SERVER_SMALL_H
#define SERVER_SMALL_H

#include "job.h"

void srv_health(srv_conn *c);
void srv_models(srv_conn *c);
void srv_model(srv_conn *c);
void srv_get_metrics(srv_conn *c);
void srv_props(srv_conn *c);
void srv_slots(srv_conn *c);
void srv_control(srv_conn *c);
void srv_embeddings(srv_conn *c);
void srv_not_stored(srv_conn *c);
void srv_page(srv_conn *c);
bool srv_slots_off(const srv_server *s, srv_error *e);
bool srv_slot_action(srv_job *j, srv_error *e);
bool srv_tokenize(srv_job *j, srv_error *e);
bool srv_detokenize(srv_job *j, srv_error *e);
bool srv_apply_template(srv_job *j, srv_error *e);

#endif
