// The table of attached clients: limits, deadlines, dead processes and full sockets.
#include "worker_agent/clients/client_table.h"

#include <gmock/gmock.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include "tests/unit/worker_agent/clients/client_process.h"

namespace gradbus {
namespace {

using test::ClientProcess;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Nanos kStart = 1000 * kSecond;

class ClientTableTest : public testing::Test {
 protected:
  // Returns the socket that the table knows it by.
  int add(ClientProcess& client, Fd process = Fd()) {
    return add(table_, client, getuid(), kStart, std::move(process));
  }
  int add(ClientTable& table, ClientProcess& client, uid_t uid, Nanos now, Fd process = Fd()) {
    AcceptedClient accepted = client.accepted(uid, std::move(process));
    const int fd = accepted.socket.get();
    table.add(std::move(accepted), now);
    return fd;
  }
  std::vector<int> ready() {
    const auto fds = watched_.wait(0);
    return {fds.begin(), fds.end()};
  }

  WatchedFds watched_;
  ClientTable table_{watched_, 2};
};

TEST_F(ClientTableTest, RefusesOneTooMany) {
  ClientProcess first, second, third, fourth;
  add(first);
  const int fd = add(second);
  EXPECT_EQ(table_.find(add(third)), nullptr);
  EXPECT_EQ(table_.size(), 2u);
  const auto refused = third.read<JoinedPacket>();
  ASSERT_TRUE(refused);
  EXPECT_THAT(get_text(refused->text), HasSubstr("GB-A304"));
  EXPECT_THAT(get_text(refused->text), HasSubstr("serves 2 clients, its limit"));
  EXPECT_FALSE(third.quiet());  // the end of the connection
  table_.remove(fd);
  add(fourth);
  EXPECT_TRUE(fourth.quiet());
  EXPECT_EQ(table_.size(), 2u);
}

// Whoever floods the table makes room with their own connections.
TEST_F(ClientTableTest, TheSilentOneThatGoesIsOfTheUserWithMost) {
  ClientTable table(watched_, 4);
  ClientProcess one, two, three, four;
  add(table, one, 7, kStart);
  const int older = add(table, two, 8, kStart + 1);
  const int newer = add(table, three, 8, kStart + 2);
  EXPECT_FALSE(table.is_full());
  const int joined = add(table, four, 8, kStart);
  EXPECT_TRUE(table.is_full());
  table.find(joined)->state = AttachedClient::State::kRunning;
  ASSERT_NE(table.longest_silent(), nullptr);
  EXPECT_EQ(table.longest_silent()->fd(), older);
  table.remove(older);
  table.remove(newer);
  EXPECT_EQ(table.longest_silent()->uid(), 7u);
  table.remove(table.longest_silent()->fd());
  EXPECT_EQ(table.longest_silent(), nullptr);
}

TEST_F(ClientTableTest, WatchesPacketsAndEndsOfProcesses) {
  ClientProcess client;
  const int process = eventfd(0, EFD_NONBLOCK);
  const int fd = add(client, Fd(process));
  EXPECT_THAT(ready(), IsEmpty());
  EXPECT_EQ(send_packet(client.socket(), "packet", 6), Code::kOk);
  EXPECT_THAT(ready(), ElementsAre(fd));
  EXPECT_EQ(table_.of_process(fd), nullptr);
  eventfd_write(process, 1);
  EXPECT_EQ(table_.of_process(process), table_.find(fd));
  EXPECT_THAT(table_.ended(kStart), IsEmpty());  // an event reports it
  table_.remove(fd);
  EXPECT_EQ(table_.of_process(process), nullptr);
  EXPECT_EQ(table_.find(fd), nullptr);
  EXPECT_THAT(ready(), IsEmpty());
  table_.remove(fd);  // nothing
}

// Expect: a child that has ended, but whose descriptor nobody could get, is found at the next look.
TEST_F(ClientTableTest, LooksForProcessesWithoutADescriptor) {
  ClientProcess client;
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  AcceptedClient accepted = client.accepted();
  accepted.identity = ProcessIdentity(child);
  const int fd = accepted.socket.get();
  table_.add(std::move(accepted), kStart);
  EXPECT_THAT(table_.ended(kStart), IsEmpty());
  kill(child, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_THAT(table_.ended(kStart + 250 * kMillisecond - 1), IsEmpty());  // too early to look
  EXPECT_THAT(table_.ended(kStart + 250 * kMillisecond), ElementsAre(fd));
  waitpid(child, nullptr, 0);
}

TEST_F(ClientTableTest, KnowsWhoIsSilent) {
  ClientProcess first, second;
  const int silent = add(first);
  table_.find(add(second))->deadline = 0;  // it has joined
  EXPECT_THAT(table_.silent(kStart + 2 * kSecond - 1), IsEmpty());
  EXPECT_THAT(table_.silent(kStart + 2 * kSecond), ElementsAre(silent));
}

// Expect: no wake-up while a socket is full, one when it has room, and none after that.
TEST_F(ClientTableTest, WakesWhenAFullSocketHasRoom) {
  ClientProcess client;
  const int fd = add(client);
  AttachedClient& attached = *table_.find(fd);
  const auto packet = make_packet<NoticePacket>();
  while (!attached.wants_to_write()) attached.send(packet);
  table_.watch_full_sockets();
  EXPECT_THAT(ready(), IsEmpty());
  while (client.read<NoticePacket>()) {
  }
  EXPECT_THAT(ready(), ElementsAre(fd));
  EXPECT_TRUE(attached.flush());
  EXPECT_FALSE(attached.wants_to_write());
  table_.watch_full_sockets();
  EXPECT_THAT(ready(), IsEmpty());
}

TEST_F(ClientTableTest, FindsWhoReadsNothing) {
  ClientProcess client;
  const int fd = add(client);
  AttachedClient& attached = *table_.find(fd);
  auto packet = make_packet<NoticePacket>();
  set_text(packet.text, std::string(sizeof(packet.text), 'x'));
  EXPECT_THAT(table_.given_up(), IsEmpty());
  for (size_t bytes = 0; bytes < 2 * kWaitingBytesMax; bytes += sizeof(packet))
    attached.send(packet);
  EXPECT_THAT(table_.given_up(), ElementsAre(fd));
  EXPECT_FALSE(attached.wants_to_write());  // nothing is kept for it
  EXPECT_THAT(attached.given_up().message(), HasSubstr("does not read its socket"));
}

// It did nothing wrong, so the reason must be told.
TEST_F(ClientTableTest, SaysThatDescriptorsAreLacking) {
  ClientProcess client;
  AttachedClient& attached = *table_.find(add(client));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  attached.send(make_packet<NoticePacket>(), {attached.fd()});
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(attached.given_up().message(), HasSubstr("GB-S220"));
}

// Their close() may wait, so nobody keeps them.
TEST_F(ClientTableTest, RefusesDescriptors) {
  ClientProcess client;
  AttachedClient& attached = *table_.find(add(client));
  const auto sent = make_packet<NoticePacket>();
  ASSERT_EQ(send_packet(client.socket(), &sent, sizeof(sent), {client.socket()}), Code::kOk);
  Packet packet;
  Status why;
  EXPECT_EQ(attached.receive(packet, why), ReceivePacket::kBad);
  EXPECT_THAT(why.message(), HasSubstr("GB-S211"));
  EXPECT_THAT(packet.fds, IsEmpty());
}

}  // namespace
}  // namespace gradbus
