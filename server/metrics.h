/* metrics.h: counters and histograms of the server, all touched by the event thread alone. */
#ifndef SERVER_METRICS_H
#define SERVER_METRICS_H

#include "job.h"

void srv_metrics_request(srv_server *s, const char *endpoint, int http, double seconds);
void srv_metrics_cancelled(srv_server *s, srv_phase phase);
void srv_metrics_usage(srv_server *s, const swl_usage *u);
struct srv_metrics *srv_metrics_create(void);
void srv_metrics_free(struct srv_metrics *m);
void srv_metrics_write(srv_server *s, srv_text *t);

#endif
