// Loads libibverbs on first use. No Gradbus binary links against it, so the same programs run on
// machines without it (over TCP). Any thread may call this.
//
// Posting and polling (ibv_post_send, ibv_post_recv, ibv_poll_cq, ibv_req_notify_cq) are inline
// calls through the device context, so the table has no row for them. Tests fill their own table.
#pragma once

#include <infiniband/verbs.h>

#include <memory>

#include "common/status.h"

namespace gradbus {

// X(member, symbol). The inline ibv_query_gid_table calls _ibv_query_gid_table. That is the newest
// symbol here: it came with rdma-core 32 (2020).
#define GRADBUS_VERBS_SYMBOLS(X)                    \
  X(get_device_list, ibv_get_device_list)           \
  X(free_device_list, ibv_free_device_list)         \
  X(get_device_name, ibv_get_device_name)           \
  X(open_device, ibv_open_device)                   \
  X(close_device, ibv_close_device)                 \
  X(query_device, ibv_query_device)                 \
  X(query_port, ibv_query_port)                     \
  X(query_gid_table, _ibv_query_gid_table)          \
  X(alloc_pd, ibv_alloc_pd)                         \
  X(dealloc_pd, ibv_dealloc_pd)                     \
  X(reg_mr, ibv_reg_mr)                             \
  X(dereg_mr, ibv_dereg_mr)                         \
  X(create_comp_channel, ibv_create_comp_channel)   \
  X(destroy_comp_channel, ibv_destroy_comp_channel) \
  X(create_cq, ibv_create_cq)                       \
  X(destroy_cq, ibv_destroy_cq)                     \
  X(get_cq_event, ibv_get_cq_event)                 \
  X(ack_cq_events, ibv_ack_cq_events)               \
  X(create_qp, ibv_create_qp)                       \
  X(modify_qp, ibv_modify_qp)                       \
  X(destroy_qp, ibv_destroy_qp)                     \
  X(wc_status_str, ibv_wc_status_str)

struct VerbsLibrary {
// NOLINTNEXTLINE(bugprone-macro-parentheses): names, not expressions
#define GRADBUS_VERBS_MEMBER(member, symbol) decltype(&symbol) member = nullptr;
  GRADBUS_VERBS_SYMBOLS(GRADBUS_VERBS_MEMBER)
#undef GRADBUS_VERBS_MEMBER
};

// Owns an object of the library and releases it with the matching function.
template <typename Object>
using Verbs = std::unique_ptr<Object, int (*)(Object*)>;

// Returns GB-D607 when `file` cannot be loaded or lacks a symbol. The message names it.
Result<VerbsLibrary> open_verbs(const char* file);

// Opens libibverbs.so.1 once and caches the result, also a failure.
Result<const VerbsLibrary*> system_verbs();

}  // namespace gradbus
