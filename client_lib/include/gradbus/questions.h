/* gradbus/questions.h: questions to the coordinator. A part of gradbus.h, which includes it. */
#ifndef GRADBUS_QUESTIONS_H_
#define GRADBUS_QUESTIONS_H_

#include "gradbus/gradbus.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Asks the coordinator for a plan of the job's steps, or for the next point of a search. Question
 * and answer are JSON: docs/design/scheduling.md has the format, which may change with the
 * version. The call blocks until the answer has come. Any rank may ask, one at a time. `answer`
 * gets a terminated text and *answer_bytes its length. INVALID for a bad question, BUSY while
 * another rank waits for an answer, UNAVAILABLE while the coordinator is gone. */
#define GRADBUS_ANSWER_BYTES_MAX (1 << 20)
GRADBUS_API gradbus_code gradbus_ask_coordinator(gradbus_session* session, const char* question,
                                                 char* answer, size_t capacity,
                                                 size_t* answer_bytes);

#ifdef __cplusplus
}
#endif

#endif /* GRADBUS_QUESTIONS_H_ */
