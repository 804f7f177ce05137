#include "data_plane/collectives/block_exchange.h"

#include <algorithm>

#include "common/check.h"

namespace gradbus {

BlockExchange::BlockExchange(const CollectivePlan& plan)
    : RoutedCollective(plan),
      chunk_bytes_(plan.chunk_elements * dtype_bytes(plan.dtype)),
      capacity_(plan.count * dtype_bytes(plan.dtype)),
      chunks_max_(plan.chunks()) {
  add_blocks();
  chunks_.resize(blocks_.size() * chunks_max_);
  close_edges();
  GRADBUS_CHECK(!blocks_.empty());
}

// All-to-all has world^2 blocks. Only the rows and columns of this agent's ranks are examined.
void BlockExchange::add_blocks() {
  const uint32_t world = plan().world();
  if (plan().kind != CollectiveKind::kAllToAll) {
    const auto count = static_cast<uint32_t>(block_count(plan().kind, world));
    for (uint32_t index = 0; index < count; ++index) add_block(index);
    return;
  }
  const std::vector<uint32_t>& agent = plan().agent_of_rank;
  for (uint32_t source = 0; source < world; ++source)
    for (uint32_t target = 0; target < world; ++target)
      if ((agent[source] == me()) != (agent[target] == me())) add_block(source * world + target);
}

void BlockExchange::add_block(uint32_t index) {
  const Tree tree = way(index);
  if (!tree.has(me()) || tree.leaf == tree.root) return;
  blocks_.push_back({.index = index, .first_chunk = blocks_.size() * chunks_max_});
  if (const auto parent = tree.parent(me())) will_receive(*parent);
  for (uint32_t i = 0; i < tree.children(me()); ++i) will_send(tree.child(me(), i), chunks_max_);
}

// ---- the route of a block

uint32_t BlockExchange::source_rank(uint32_t index) const {
  switch (plan().kind) {
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kScatter: return plan().root;
    case CollectiveKind::kAllToAll: return index / plan().world();
    default: return index;
  }
}

Tree BlockExchange::way(uint32_t index) const {
  const std::vector<uint32_t>& agent = plan().agent_of_rank;
  Tree tree{.shape = Tree::Shape::kPair,
            .root = agent[source_rank(index)],
            .agents = plan().agents,
            .leaf = plan().agents};
  switch (plan().kind) {
    case CollectiveKind::kGather: tree.leaf = agent[plan().root]; return tree;
    case CollectiveKind::kScatter: tree.leaf = agent[index]; return tree;
    case CollectiveKind::kAllToAll: tree.leaf = agent[index % plan().world()]; return tree;
    default: break;
  }
  switch (plan().algorithm) {
    case Algorithm::kTree: tree.shape = Tree::Shape::kBinomial; break;
    case Algorithm::kDirect: tree.shape = Tree::Shape::kStar; break;
    default: tree.shape = Tree::Shape::kAhead;
  }
  return tree;
}

bool BlockExchange::has_lengths() const {
  return plan().kind == CollectiveKind::kAllGather || plan().kind == CollectiveKind::kGather ||
         plan().codec != CodecId::kDense;
}

uint64_t BlockExchange::own_length(uint32_t index, std::span<const uint64_t> block_bytes) const {
  if (!has_lengths()) return capacity_;
  return block_bytes[plan().kind == CollectiveKind::kAllToAll ? index % plan().world() : index];
}

uint64_t BlockExchange::unit_bytes() const {
  return plan().kind == CollectiveKind::kBroadcast ? dtype_bytes(plan().dtype) : 1;
}

const BlockExchange::Block* BlockExchange::find(uint32_t index) const {
  const auto at =
      std::lower_bound(blocks_.begin(), blocks_.end(), index,
                       [](const Block& block, uint32_t wanted) { return block.index < wanted; });
  return at == blocks_.end() || at->index != index ? nullptr : &*at;
}

BlockExchange::Block* BlockExchange::find(uint32_t index) {
  return const_cast<Block*>(std::as_const(*this).find(index));
}

uint32_t BlockExchange::chunks_of(uint64_t bytes) const {
  return bytes == 0 ? 1 : static_cast<uint32_t>((bytes + chunk_bytes_ - 1) / chunk_bytes_);
}

uint64_t BlockExchange::bytes_of(uint64_t block_bytes, uint32_t chunk) const {
  return std::min(chunk_bytes_, block_bytes - chunk * chunk_bytes_);
}

// ---- a round

void BlockExchange::open_round(std::span<const uint64_t> block_bytes,
                               std::vector<Action>& actions) {
  for (Block& block : blocks_) block.open = false;
  pieces_open_ = blocks_.size();  // a block of unknown length counts as one piece
  for (Block& block : blocks_) {
    if (!is_own(block.index)) continue;
    open_block(block, own_length(block.index, block_bytes));
    const uint32_t chunks = chunks_of(block.bytes);
    for (uint32_t chunk = 0; chunk < chunks; ++chunk) pass_on(block, chunk, actions);
  }
}

void BlockExchange::open_block(Block& block, uint64_t bytes) {
  const uint32_t chunks = chunks_of(bytes);
  GRADBUS_CHECK(chunks <= chunks_max_ && !block.open);
  block.open = true;
  block.bytes = bytes;
  std::fill_n(chunks_.begin() + static_cast<ptrdiff_t>(block.first_chunk), chunks, Chunk{});
  pieces_open_ += chunks - 1;
}

void BlockExchange::pass_on(Block& block, uint32_t chunk, std::vector<Action>& actions) {
  const Tree tree = way(block.index);
  const uint32_t children = tree.children(me());
  Chunk& state = chunks_[block.first_chunk + chunk];
  state = {.here = true, .sends_left = children};
  if (children == 0) --pieces_open_;
  for (uint32_t i = children; i-- > 0;)
    make_ready(tree.child(me(), i), {chunk, block.index, FrameKind::kReduce}, actions);
}

// ---- frames

Status BlockExchange::check_piece(uint32_t from, const FrameHeader& header) const {
  constexpr auto kKind = static_cast<uint64_t>(FrameKind::kReduce);
  GRADBUS_RETURN_IF_ERROR(expect_field(header, "kind", header.kind, kKind));
  GRADBUS_RETURN_IF_ERROR(check_block(header));
  if (way(header.source).parent(me()) != from)
    return refuse_frame(header, "source is " + std::to_string(header.source) +
                                    ", a block that does not come here from agent " +
                                    std::to_string(from));
  const Block& block = *find(header.source);
  if (block.open)  // The length is already known: all frames of the block must agree.
    GRADBUS_RETURN_IF_ERROR(
        expect_field(header, "total", header.total, block.bytes / unit_bytes()));
  const uint64_t bytes = header.total * unit_bytes();
  GRADBUS_RETURN_IF_ERROR(expect_below(header, "chunk", header.chunk, chunks_of(bytes)));
  GRADBUS_RETURN_IF_ERROR(
      expect_field(header, "length", header.length, bytes_of(bytes, header.chunk)));
  if (!block.open || !chunks_[block.first_chunk + header.chunk].here) return {};
  return refuse_frame(header,
                      "chunk of source " + std::to_string(header.source) + " for the second time");
}

// Checks that the block of `source` may come here, and that it may have this `total`.
Status BlockExchange::check_block(const FrameHeader& header) const {
  GRADBUS_RETURN_IF_ERROR(
      expect_below(header, "source", header.source, block_count(plan().kind, plan().world())));
  if (is_own(header.source) || find(header.source) == nullptr)
    return refuse_frame(header, "source is " + std::to_string(header.source) +
                                    (is_own(header.source) ? ", a block of this agent"
                                                           : ", a block that does not come here"));
  if (!has_lengths()) return expect_field(header, "total", header.total, capacity_ / unit_bytes());
  GRADBUS_RETURN_IF_ERROR(expect_below(header, "total", header.total, capacity_ + 1));
  return expect_field(header, "total % element bytes", header.total % dtype_bytes(plan().dtype), 0);
}

void BlockExchange::accept_frame(uint32_t, const FrameHeader& header, uint32_t buffer,
                                 std::vector<Action>& actions) {
  Block& block = *find(header.source);
  if (!block.open) open_block(block, header.total * unit_bytes());
  actions.push_back(act(Action::Kind::kDeliver, block, header.chunk));
  actions.back().buffer = buffer;
  release(buffer, actions);
  pass_on(block, header.chunk, actions);
}

Action BlockExchange::start_send(Piece piece) {
  return act(Action::Kind::kSend, *find(piece.source), piece.chunk);
}

void BlockExchange::finish_send(const Action& send, std::vector<Action>&) {
  const Block* block = find(send.source);
  GRADBUS_CHECK(block != nullptr && send.chunk < chunks_max_);
  Chunk& chunk = chunks_[block->first_chunk + send.chunk];
  GRADBUS_CHECK(chunk.here && chunk.sends_left > 0);
  if (--chunk.sends_left == 0) --pieces_open_;
}

Action BlockExchange::act(Action::Kind kind, const Block& block, uint32_t chunk) const {
  return {.kind = kind,
          .chunk = chunk,
          .source = block.index,
          .round = round(),
          .bytes = bytes_of(block.bytes, chunk),
          .total = block.bytes / unit_bytes()};
}

}  // namespace gradbus
