/* offer.h: models that could be there. */
#ifndef CLI_OFFER_H
#define CLI_OFFER_H

#include "options.h"

/* At a terminal, when the command's model is an ORG/NAME that is not installed: asks, and downloads it. What is left over is
 * for model_check to say. */
swl_status offer_model(const arguments *a, swl_error *err);

#endif
