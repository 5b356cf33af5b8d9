// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/memory_plan.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/status.h"
#include "runtime/compile/rewrite.h"

namespace plumb {
namespace {

// A range of the arena, used by one value, or in turn by several that alias each other.
struct Buffer {
  int64_t bytes = 0;  // a multiple of kAlignment
  int32_t first = 0, last = 0;
  ValueId holder = kNoValue;  // the latest value in it
  int64_t offset = 0;
};

// The free ranges of an arena of unlimited size.
class Gaps {
 public:
  Gaps() { Add(0, kEndless); }

  // Takes the lowest of the smallest gaps that hold `bytes`. Returns its offset.
  int64_t Take(int64_t bytes) {
    if (bytes == 0) return 0;
    const auto [size, offset] = *by_size_.lower_bound({bytes, 0});
    Remove(offset, size);
    if (size > bytes) Add(offset + bytes, size - bytes);
    return offset;
  }

  void Release(int64_t offset, int64_t bytes) {
    if (bytes == 0) return;
    const auto next = by_offset_.lower_bound(offset);
    int64_t begin = offset, end = offset + bytes;
    const std::pair<int64_t, int64_t> after = *next;  // exists: the endless gap is never used up
    if (next != by_offset_.begin()) {
      const std::pair<int64_t, int64_t> before = *std::prev(next);
      if (before.first + before.second == begin) {
        begin = before.first;
        Remove(before.first, before.second);
      }
    }
    if (after.first == end) {
      end = after.first + after.second;
      Remove(after.first, after.second);
    }
    Add(begin, end - begin);
  }

 private:
  static constexpr int64_t kEndless = int64_t{1} << 62;

  void Add(int64_t offset, int64_t size) {
    by_offset_.emplace(offset, size);
    by_size_.emplace(size, offset);
  }
  void Remove(int64_t offset, int64_t size) {
    by_offset_.erase(offset);
    by_size_.erase({size, offset});
  }

  std::map<int64_t, int64_t> by_offset_;           // offset, size
  std::set<std::pair<int64_t, int64_t>> by_size_;  // size, offset
};

class Planner {
 public:
  explicit Planner(const Graph& graph)
      : graph_(graph), buffer_of_(graph.values.size(), -1), state_(StateOfValues(graph)) {
    plan_.places.resize(graph.values.size());
  }

  absl::StatusOr<MemoryPlan> Run() {
    FindLifetimes();
    PlaceLeaves();
    PLUMB_RETURN_IF_ERROR(PlaceOutputs());
    for (size_t i = 0; i < graph_.nodes.size(); ++i) PlaceResults(graph_.nodes[i], i);
    plan_.live_bytes = PeakLiveBytes();
    AssignOffsets();
    return std::move(plan_);
  }

 private:
  void FindLifetimes() {
    for (size_t id = 0; id < graph_.values.size(); ++id) {
      plan_.places[id].first = plan_.places[id].last = graph_.values[id].producer;
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      for (const ValueId id : graph_.nodes[i].inputs) {
        if (id != kNoValue) plan_.places[Index(id)].last = static_cast<int32_t>(i);
      }
    }
  }

  bool IsExternal(ValueId id) const {
    return plan_.places[Index(id)].kind == MemoryPlan::Place::Kind::kExternal;
  }

  void MakeExternal(ValueId id) {
    MemoryPlan::Place& place = plan_.places[Index(id)];
    place.kind = MemoryPlan::Place::Kind::kExternal;
    place.external = static_cast<int32_t>(plan_.externals.size());
    plan_.externals.push_back(id);
  }

  void PlaceLeaves() {
    for (size_t id = 0; id < graph_.values.size(); ++id) {
      if (graph_.values[id].kind != ValueKind::kComputed) MakeExternal(static_cast<ValueId>(id));
    }
    for (size_t id = 0; id < graph_.values.size(); ++id) {
      if (graph_.values[id].kind == ValueKind::kComputed && state_[id] != kNoValue) {
        plan_.places[id].kind = MemoryPlan::Place::Kind::kExternal;
        plan_.places[id].external = plan_.places[Index(state_[id])].external;
      }
    }
  }

  absl::Status PlaceOutputs() {
    absl::flat_hash_map<absl::string_view, ValueId> by_name;
    for (size_t id = 0; id < graph_.values.size(); ++id) {
      by_name.try_emplace(graph_.values[id].name, static_cast<ValueId>(id));
    }
    for (size_t k = 0; k < graph_.outputs.size(); ++k) {
      const auto& [name, id] = graph_.outputs[k];
      const auto found = by_name.find(name);
      const ValueId named = found == by_name.end() ? kNoValue : found->second;
      if (named != kNoValue && graph_.value(named).kind != ValueKind::kComputed) {
        // A caller who binds memory to this name can mean only one of the two.
        if (!IsExternal(id) ||
            plan_.places[Index(id)].external != plan_.places[Index(named)].external) {
          return absl::InvalidArgumentError(absl::StrCat(
              "output ", name, " is %", id, ", but a parameter, input or state has that name too"));
        }
        continue;
      }
      if (!IsExternal(id)) {
        MakeExternal(id);
      } else if (graph_.value(id).kind != ValueKind::kComputed || state_[Index(id)] == kNoValue) {
        plan_.copied_outputs.push_back(static_cast<int32_t>(k));
      }
    }
    return absl::OkStatus();
  }

  void PlaceResults(const Node& node, size_t index) {
    for (size_t out = 0; out < node.outputs.size(); ++out) {
      const ValueId id = node.outputs[out];
      const bool is_external = IsExternal(id);
      if (is_external && !OwnsPlace(id)) continue;
      int32_t buffer = BufferToTake(node, static_cast<int32_t>(index), static_cast<int>(out));
      if (is_external) {
        if (buffer >= 0) MoveOut(buffer, plan_.places[Index(id)].external);
        continue;
      }
      if (buffer < 0) {
        buffer = static_cast<int32_t>(buffers_.size());
        buffers_.push_back({AlignUp(graph_.value(id).type.bytes()), static_cast<int32_t>(index)});
      }
      buffer_of_[Index(id)] = buffer;
      buffers_[Index(buffer)].last = plan_.places[Index(id)].last;
      buffers_[Index(buffer)].holder = id;
    }
  }

  // Returns true if the external memory belongs to this output only, with no value in it before.
  bool OwnsPlace(ValueId id) const {
    return graph_.value(id).kind == ValueKind::kComputed &&
           plan_.externals[Index(plan_.places[Index(id)].external)] == id;
  }

  // Moves the values of the buffer to the output's memory.
  void MoveOut(int32_t buffer, int32_t external) {
    for (size_t id = 0; id < buffer_of_.size(); ++id) {
      if (buffer_of_[id] != buffer) continue;
      buffer_of_[id] = -1;
      plan_.places[id].kind = MemoryPlan::Place::Kind::kExternal;
      plan_.places[id].external = external;
    }
    buffers_[Index(buffer)].bytes = 0;
  }

  // Returns the buffer of an input whose last read is this node and whose memory output `out` may
  // take, or -1.
  int32_t BufferToTake(const Node& node, int32_t index, int out) const {
    const auto& may_alias = node.op->may_alias;
    const auto allowed = [&](size_t in) {
      const std::pair<int, int> pair(out, static_cast<int>(in));
      return std::find(may_alias.begin(), may_alias.end(), pair) != may_alias.end();
    };
    const int64_t bytes = graph_.value(node.outputs[static_cast<size_t>(out)]).type.bytes();
    for (const auto& [alias_out, alias_in] : may_alias) {
      if (alias_out != out || static_cast<size_t>(alias_in) >= node.inputs.size()) continue;
      const ValueId input = node.inputs[static_cast<size_t>(alias_in)];
      if (input == kNoValue || IsExternal(input) || plan_.places[Index(input)].last != index ||
          graph_.value(input).type.bytes() != bytes) {
        continue;
      }
      const int32_t buffer = buffer_of_[Index(input)];
      // Another output of this node may have taken it.
      if (buffers_[Index(buffer)].holder != input) continue;
      // If the node reads the value several times, each of these operands must allow aliasing.
      bool everywhere = true;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        everywhere = everywhere && (node.inputs[i] != input || allowed(i));
      }
      if (everywhere) return buffer;
    }
    return -1;
  }

  int64_t PeakLiveBytes() const {
    std::vector<int64_t> change(graph_.nodes.size() + 1, 0);
    for (const Buffer& buffer : buffers_) {
      change[Index(buffer.first)] += buffer.bytes;
      change[Index(buffer.last) + 1] -= buffer.bytes;
    }
    int64_t live = 0, peak = 0;
    for (const int64_t bytes : change) peak = std::max(peak, live += bytes);
    return peak;
  }

  // Tries largest-first and earliest-first, and keeps the smaller plan; neither is better for all
  // graphs. Largest-first takes quadratic time, so graphs of hundreds of layers use only
  // earliest-first.
  void AssignOffsets() {
    constexpr size_t kMaxBySize = 8192;
    std::vector<Buffer> by_time = buffers_;
    plan_.arena_bytes = FitByTime(&by_time);
    const int64_t bytes_by_size =
        buffers_.size() <= kMaxBySize ? FitBySize(&buffers_) : std::numeric_limits<int64_t>::max();
    if (plan_.arena_bytes < bytes_by_size) buffers_ = std::move(by_time);
    plan_.arena_bytes = std::min(plan_.arena_bytes, bytes_by_size);
    for (size_t id = 0; id < graph_.values.size(); ++id) {
      if (buffer_of_[id] >= 0) plan_.places[id].offset = buffers_[Index(buffer_of_[id])].offset;
    }
  }

  // Places each buffer, the largest first, into the smallest gap that holds it between the buffers
  // that are already placed and live at the same time. Returns the bytes needed.
  static int64_t FitBySize(std::vector<Buffer>* buffers) {
    std::vector<int32_t> order(buffers->size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [buffers](int32_t a, int32_t b) {
      return (*buffers)[Index(a)].bytes > (*buffers)[Index(b)].bytes;
    });
    std::vector<const Buffer*> placed;  // sorted by offset
    int64_t arena = 0;
    for (const int32_t index : order) {
      Buffer& buffer = (*buffers)[Index(index)];
      int64_t end = 0, best_gap = -1;
      for (const Buffer* other : placed) {
        if (other->last < buffer.first || buffer.last < other->first) continue;
        const int64_t gap = other->offset - end;
        if (gap >= buffer.bytes && (best_gap < 0 || gap < best_gap)) {
          best_gap = gap;
          buffer.offset = end;
        }
        end = std::max(end, other->offset + other->bytes);
      }
      if (best_gap < 0) buffer.offset = end;
      arena = std::max(arena, buffer.offset + buffer.bytes);
      const auto at =
          std::upper_bound(placed.begin(), placed.end(), &buffer,
                           [](const Buffer* a, const Buffer* b) { return a->offset < b->offset; });
      placed.insert(at, &buffer);
    }
    return arena;
  }

  // Places the earliest buffers first. Then only the buffers that are live at the current node
  // matter, and the gaps between them are updated as buffers begin and end.
  static int64_t FitByTime(std::vector<Buffer>* buffers) {
    std::vector<int32_t> by_end(buffers->size());
    std::iota(by_end.begin(), by_end.end(), 0);
    std::stable_sort(by_end.begin(), by_end.end(), [buffers](int32_t a, int32_t b) {
      return (*buffers)[Index(a)].last < (*buffers)[Index(b)].last;
    });
    Gaps gaps;
    int64_t arena = 0;
    size_t ended = 0;
    for (Buffer& buffer : *buffers) {
      for (; ended < by_end.size() && (*buffers)[Index(by_end[ended])].last < buffer.first;
           ++ended) {
        const Buffer& gone = (*buffers)[Index(by_end[ended])];
        gaps.Release(gone.offset, gone.bytes);
      }
      buffer.offset = gaps.Take(buffer.bytes);
      arena = std::max(arena, buffer.offset + buffer.bytes);
    }
    return arena;
  }

  const Graph& graph_;
  MemoryPlan plan_;
  std::vector<Buffer> buffers_;     // ordered by first node
  std::vector<int32_t> buffer_of_;  // indexed by ValueId; -1 for externals
  const std::vector<ValueId> state_;
};

std::string NodeRange(const MemoryPlan::Place& place) {
  const std::string first = place.first < 0 ? "" : absl::StrCat(place.first);
  return absl::StrCat(first, "..", place.last < 0 ? "" : absl::StrCat(place.last));
}

}  // namespace

absl::StatusOr<MemoryPlan> PlanMemory(const Graph& graph) { return Planner(graph).Run(); }

std::string PlaceName(const MemoryPlan& plan, const Graph& graph, ValueId id) {
  const MemoryPlan::Place& place = plan.places[Index(id)];
  if (place.kind == MemoryPlan::Place::Kind::kArena) return absl::StrCat("arena+", place.offset);
  const ValueId owner = plan.externals[Index(place.external)];
  const Value& value = graph.value(owner);
  switch (value.kind) {
    case ValueKind::kParameter:
      return absl::StrCat("parameter ", value.name);
    case ValueKind::kInput:
      return absl::StrCat("input ", value.name);
    case ValueKind::kState:
      return absl::StrCat("state ", value.name);
    case ValueKind::kComputed:
      break;
  }
  for (const GraphOutput& output : graph.outputs) {
    if (output.value == owner) return absl::StrCat("output ", output.name);
  }
  return "external";
}

std::string ToString(const MemoryPlan& plan, const Graph& graph) {
  std::vector<std::string> places;
  size_t name_width = 5, place_width = 5;
  for (size_t id = 0; id < graph.values.size(); ++id) {
    places.push_back(PlaceName(plan, graph, static_cast<ValueId>(id)));
    name_width = std::max(name_width, graph.values[id].name.size());
    place_width = std::max(place_width, places.back().size());
  }
  const auto row = [&](absl::string_view name, absl::string_view bytes, absl::string_view place,
                       absl::string_view nodes) {
    return absl::StrFormat("%-*s %12s  %-*s  %s\n", static_cast<int>(name_width), name, bytes,
                           static_cast<int>(place_width), place, nodes);
  };
  std::string text = row("value", "bytes", "place", "nodes");
  int64_t external_bytes = 0, without_reuse = 0;
  for (size_t id = 0; id < graph.values.size(); ++id) {
    const int64_t bytes = graph.values[id].type.bytes();
    absl::StrAppend(&text, row(graph.values[id].name, absl::StrCat(bytes), places[id],
                               NodeRange(plan.places[id])));
    if (plan.places[id].kind == MemoryPlan::Place::Kind::kArena) without_reuse += AlignUp(bytes);
  }
  for (const ValueId id : plan.externals) external_bytes += graph.value(id).type.bytes();
  for (const int32_t k : plan.copied_outputs) {
    const GraphOutput& output = graph.outputs[Index(k)];
    external_bytes += graph.value(output.value).type.bytes();
    absl::StrAppend(&text, "output ", output.name, " is copied from ",
                    graph.value(output.value).name, " after the last node\n");
  }
  absl::StrAppend(&text, "external ", external_bytes, " bytes, arena ", plan.arena_bytes,
                  " bytes (live at once ", plan.live_bytes, ", without reuse ", without_reuse,
                  ")\n");
  return text;
}

}  // namespace plumb
