#include "server/coordinator/self_call.h"

#include <thread>

namespace gradbus {

SelfCall::SelfCall(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  stub_ = v1::Coordinator::NewStub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
}

SelfCall::~SelfCall() {
  if (const std::shared_ptr<Call> call = call_.lock()) call->context.TryCancel();
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (!call_.expired() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void SelfCall::begin(Nanos now) {
  if (!call_.expired()) return;
  const auto call = std::make_shared<Call>();
  call_ = call;
  since_ = now;
  call->context.set_deadline(std::chrono::system_clock::now() + kDeadline);
  stub_->async()->Challenge(&call->context, &call->request, &call->reply,
                            [call](const grpc::Status&) {});
}

}  // namespace gradbus
