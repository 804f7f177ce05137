#include "unit/transport/verbs_double.h"

#include <arpa/inet.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace gradbus {
namespace {

VerbsDouble* the_double = nullptr;
ibv_device device;
ibv_context context;
ibv_pd domain;
ibv_comp_channel channel;

// A queue per queue pair: pairs are found by the order of their making, as queues are.
struct Queue {
  ibv_cq cq{};
  VerbsDouble::Pair* pair = nullptr;
};

template <typename T>
T* unless(int refused, T* object) {
  errno = refused;
  return refused == 0 ? object : nullptr;
}

ibv_device** get_device_list(int* count) {
  *count = the_double->device_there ? 1 : 0;
  return new ibv_device* [2] { the_double->device_there ? &device : nullptr, nullptr };
}
void free_device_list(ibv_device** list) { delete[] list; }
const char* get_device_name(ibv_device*) { return "double0"; }
ibv_context* open_device(ibv_device*) { return unless(the_double->open_refused, &context); }
int close_device(ibv_context*) { return 0; }
int query_device(ibv_context*, ibv_device_attr* attributes) {
  attributes->phys_port_cnt = 1;
  return 0;
}
int query_port(ibv_context*, uint8_t, _compat_ibv_port_attr* old_form) {
  auto* attributes = reinterpret_cast<ibv_port_attr*>(old_form);
  attributes->state = the_double->port_state;
  attributes->active_mtu = IBV_MTU_1024;
  attributes->link_layer = IBV_LINK_LAYER_ETHERNET;
  return 0;
}
ssize_t query_gid_table(ibv_context*, ibv_gid_entry* entries, size_t max, uint32_t, size_t) {
  const size_t count = std::min(max, the_double->gids.size());
  std::copy_n(the_double->gids.begin(), count, entries);
  return static_cast<ssize_t>(count);
}

ibv_pd* alloc_pd(ibv_context*) { return unless(the_double->domain_refused, &domain); }
int dealloc_pd(ibv_pd*) { return 0; }
ibv_mr* reg_mr(ibv_pd*, void*, size_t, int access) {
  if (access != IBV_ACCESS_LOCAL_WRITE) std::abort();  // nothing may be open to peers
  if (the_double->memory_refused == 0) ++the_double->registrations;
  return unless(the_double->memory_refused,
                the_double->memory_refused == 0 ? new ibv_mr{} : nullptr);
}
int dereg_mr(ibv_mr* region) {
  --the_double->registrations;
  delete region;
  return 0;
}

ibv_comp_channel* create_comp_channel(ibv_context*) {
  channel.fd = eventfd(0, EFD_CLOEXEC);
  return &channel;
}
int destroy_comp_channel(ibv_comp_channel* one) { return close(one->fd); }
ibv_cq* create_cq(ibv_context*, int, void*, ibv_comp_channel*, int) {
  auto* queue = new Queue;
  queue->cq.context = &context;
  return &queue->cq;
}
int destroy_cq(ibv_cq* queue) {
  delete reinterpret_cast<Queue*>(queue);
  return 0;
}
int get_cq_event(ibv_comp_channel*, ibv_cq**, void**) { return -1; }
void ack_cq_events(ibv_cq*, unsigned) {}
int req_notify_cq(ibv_cq* cq, int) {
  if (VerbsDouble::Pair* pair = reinterpret_cast<Queue*>(cq)->pair; pair != nullptr) ++pair->armed;
  return 0;
}
int poll_cq(ibv_cq* cq, int room, ibv_wc* ended) {
  VerbsDouble::Pair* pair = reinterpret_cast<Queue*>(cq)->pair;
  int count = 0;
  for (; pair != nullptr && count < room && !pair->ended.empty(); ++count) {
    ended[count] = pair->ended.front();
    pair->ended.pop_front();
  }
  return count;
}

ibv_qp* create_qp(ibv_pd*, ibv_qp_init_attr* wanted) {
  if (the_double->pair_refused != 0) return unless<ibv_qp>(the_double->pair_refused, nullptr);
  auto pair = std::make_unique<VerbsDouble::Pair>();
  pair->qp.context = &context;
  pair->qp.qp_num = static_cast<uint32_t>(the_double->pairs.size() + 100);
  reinterpret_cast<Queue*>(wanted->send_cq)->pair = pair.get();
  wanted->cap.max_inline_data = 128;
  the_double->pairs.push_back(std::move(pair));
  return &the_double->pairs.back()->qp;
}
int modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int) {
  auto& pair = *reinterpret_cast<VerbsDouble::Pair*>(qp);
  if (attributes->qp_state == IBV_QPS_RTR) return the_double->receiver_refused;
  if (attributes->qp_state != IBV_QPS_ERR) return 0;
  pair.failed = true;
  if (!the_double->gives_back) return 0;
  VerbsDouble::end_sends(pair, pair.sends.size(), IBV_WC_WR_FLUSH_ERR);
  while (!pair.receives.empty()) VerbsDouble::end_receive(pair, IBV_WC_WR_FLUSH_ERR, 0);
  return 0;
}
int destroy_qp(ibv_qp*) { return 0; }  // the double keeps it: tests look at it later
int post_send(ibv_qp* qp, ibv_send_wr* requests, ibv_send_wr** refused) {
  *refused = requests;
  if (the_double->send_refused != 0) return the_double->send_refused;
  auto& pair = *reinterpret_cast<VerbsDouble::Pair*>(qp);
  for (; requests != nullptr; requests = requests->next) {
    pair.sends.push_back(*requests);
    pair.requests.push_back({{requests->sg_list, requests->sg_list + requests->num_sge},
                             (requests->send_flags & IBV_SEND_INLINE) != 0});
  }
  return 0;
}
int post_recv(ibv_qp* qp, ibv_recv_wr* request, ibv_recv_wr**) {
  auto& pair = *reinterpret_cast<VerbsDouble::Pair*>(qp);
  pair.receives.push_back(request->wr_id);
  pair.requests.push_back({{request->sg_list, request->sg_list + request->num_sge}, false});
  return 0;
}
const char* wc_status_str(ibv_wc_status) { return "what the double was told"; }

ibv_wc ended_work(uint64_t id, ibv_wc_status status, uint32_t bytes) {
  ibv_wc work{};
  work.wr_id = id;
  work.status = status;
  work.byte_len = bytes;
  return work;
}

}  // namespace

VerbsDouble::VerbsDouble() : gids{gid_entry(1, "::ffff:127.0.0.1", IBV_GID_TYPE_ROCE_V2)} {
  the_double = this;
  context.ops.post_send = post_send;
  context.ops.post_recv = post_recv;
  context.ops.poll_cq = poll_cq;
  context.ops.req_notify_cq = req_notify_cq;
#define GRADBUS_VERBS_DOUBLE(member, symbol) library_.member = member;
  GRADBUS_VERBS_SYMBOLS(GRADBUS_VERBS_DOUBLE)
#undef GRADBUS_VERBS_DOUBLE
}

VerbsDouble::~VerbsDouble() { the_double = nullptr; }

void VerbsDouble::end_sends(Pair& pair, size_t count, ibv_wc_status status) {
  for (; count > 0; --count, pair.sends.pop_front()) {
    const ibv_send_wr& send = pair.sends.front();
    const bool told = status != IBV_WC_SUCCESS || (send.send_flags & IBV_SEND_SIGNALED) != 0;
    if (told) pair.ended.push_back(ended_work(send.wr_id, status, 0));
  }
}

void VerbsDouble::end_receive(Pair& pair, ibv_wc_status status, uint32_t bytes) {
  pair.ended.push_back(ended_work(pair.receives.front(), status, bytes));
  pair.receives.pop_front();
}

ibv_gid_entry gid_entry(uint32_t index, const std::string& ipv6, uint32_t type) {
  ibv_gid_entry entry{};
  inet_pton(AF_INET6, ipv6.c_str(), entry.gid.raw);
  entry.gid_index = index;
  entry.port_num = 1;
  entry.gid_type = type;
  return entry;
}

}  // namespace gradbus
