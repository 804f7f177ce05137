#include "server/coordinator/self_call.h"

namespace gradbus {

SelfCall::SelfCall(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  stub_ = v1::Coordinator::NewStub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
}

SelfCall::~SelfCall() {
  if (state_->since.load() != 0) state_->context.TryCancel();
}

void SelfCall::begin(Nanos now) {
  if (state_->since.load() != 0) return;
  state_ = std::make_shared<State>();
  state_->since = now;
  state_->context.set_deadline(std::chrono::system_clock::now() + kDeadline);
  stub_->async()->Challenge(&state_->context, &state_->request, &state_->reply,
                            [state = state_](const grpc::Status&) { state->since = 0; });
}

}  // namespace gradbus
