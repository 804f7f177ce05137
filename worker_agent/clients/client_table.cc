#include "worker_agent/clients/client_table.h"

#include <algorithm>

#include "common/errors.h"

namespace gradbus {
namespace {

// Deadline from accept() to the first packet.
constexpr Nanos kHandshakeDeadline = 2 * kSecond;
constexpr Nanos kLookEvery = 250 * kMillisecond;

}  // namespace

void ClientTable::add(AcceptedClient accepted, Nanos now) {
  accepted.number = ++added_;
  auto client = std::make_unique<AttachedClient>(std::move(accepted));
  client->deadline = now + kHandshakeDeadline;
  if (is_full())
    return client->refuse_join(error(
        "A304", "this agent serves " + std::to_string(clients_.size()) + " clients, its limit"));
  if (!watched_.add(client->fd()))
    return client->refuse_join(error("A304", "this agent cannot watch one more socket"));
  if (client->process_fd() >= 0 && watched_.add(client->process_fd()))
    client_of_process_[client->process_fd()] = client->fd();
  clients_[client->fd()] = std::move(client);
}

void ClientTable::remove(int fd) {
  const auto found = clients_.find(fd);
  if (found == clients_.end()) return;
  watched_.remove(fd);
  if (const int process = found->second->process_fd(); process >= 0) {
    watched_.remove(process);
    client_of_process_.erase(process);
  }
  full_.erase(fd);
  clients_.erase(found);
}

AttachedClient* ClientTable::longest_silent() const {
  std::map<uid_t, std::vector<AttachedClient*>> silent;
  for (const auto& [fd, client] : clients_)
    if (client->state == AttachedClient::State::kNew) silent[client->uid()].push_back(client.get());
  const auto most = std::ranges::max_element(
      silent, {}, [](const auto& of_user) { return of_user.second.size(); });
  if (most == silent.end()) return nullptr;
  return *std::ranges::min_element(most->second, {}, &AttachedClient::deadline);
}

AttachedClient* ClientTable::find(int fd) const {
  const auto found = clients_.find(fd);
  return found == clients_.end() ? nullptr : found->second.get();
}

AttachedClient* ClientTable::of_process(int fd) const {
  const auto found = client_of_process_.find(fd);
  return found == client_of_process_.end() ? nullptr : find(found->second);
}

std::vector<int> ClientTable::ended(Nanos now) {
  if (now < next_look_) return {};
  next_look_ = now + kLookEvery;
  std::vector<int> found;
  for (const AttachedClient& client : all())
    if (client.process_fd() < 0 && client.process_ended()) found.push_back(client.fd());
  return found;
}

std::vector<int> ClientTable::silent(Nanos now) const {
  std::vector<int> found;
  for (const AttachedClient& client : all())
    if (client.deadline != 0 && now >= client.deadline) found.push_back(client.fd());
  return found;
}

std::vector<int> ClientTable::given_up() const {
  std::vector<int> found;
  for (const AttachedClient& client : all())
    if (!client.given_up().ok()) found.push_back(client.fd());
  return found;
}

void ClientTable::watch_full_sockets() {
  for (const AttachedClient& client : all()) {
    if (client.wants_to_write() == full_.contains(client.fd())) continue;
    client.wants_to_write() ? void(full_.insert(client.fd())) : void(full_.erase(client.fd()));
    watched_.change(client.fd(), EPOLLIN | (client.wants_to_write() ? EPOLLOUT : 0u));
  }
}

}  // namespace gradbus
