#include "server/coordinator/lost_nodes.h"

#include <utility>

namespace gradbus {

void LostNodes::add(Node node) {
  forget(node.name);
  nodes_.push_back(std::move(node));
  if (nodes_.size() > kLostNodesMax) nodes_.pop_front();
}

bool LostNodes::forget(const std::string& name) {
  return std::erase_if(nodes_, [&](const Node& node) { return node.name == name; }) > 0;
}

void LostNodes::forget_old(Nanos now) {
  std::erase_if(nodes_, [&](const Node& node) { return now - node.at > kLostNodeKept; });
}

}  // namespace gradbus
