// SPDX-License-Identifier: Apache-2.0
#include "runtime/ranks/collectives.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/check.h"
#include "runtime/base/divide.h"
#include "runtime/base/status.h"
#include "runtime/ranks/communicator.h"

namespace plumb {
namespace {

void AppendText(absl::string_view text, std::string* all) {
  const uint64_t bytes = text.size();
  all->append(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
  all->append(text.data(), text.size());
}

// Returns the texts that AppendText appended; `all` may come from another rank of this program.
std::vector<std::string> SplitTexts(absl::string_view all) {
  std::vector<std::string> texts;
  while (!all.empty()) {
    uint64_t bytes = 0;
    PLUMB_CHECK(all.size() >= sizeof(bytes), "texts as AppendText writes them");
    std::memcpy(&bytes, all.data(), sizeof(bytes));
    all.remove_prefix(sizeof(bytes));
    PLUMB_CHECK(all.size() >= bytes, "texts as AppendText writes them");
    texts.emplace_back(all.substr(0, bytes));
    all.remove_prefix(bytes);
  }
  return texts;
}

std::string JoinTexts(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& each : texts) AppendText(each, &all);
  return all;
}

std::string ValueText(absl::string_view value) {
  return value.empty() ? std::string("nothing") : std::string(value);
}

// Returns "rank 2 (host b)" or "ranks 1 2 3 (host b)".
std::string RanksOnHosts(const std::vector<int>& ranks, const std::vector<std::string>& hosts) {
  std::map<std::string, std::vector<int>> by_host;
  for (int rank : ranks) by_host[hosts[rank]].push_back(rank);
  return absl::StrJoin(by_host, ", ", [](std::string* out, const auto& each) {
    absl::StrAppend(out, each.second.size() == 1 ? "rank " : "ranks ",
                    absl::StrJoin(each.second, " "), " (host ", each.first, ")");
  });
}

}  // namespace

absl::Status Send(Communicator* ranks, int to, int tag, const void* data, size_t bytes) {
  PLUMB_ASSIGN_OR_RETURN(Communicator::Transfer transfer, ranks->StartSend(to, tag, data, bytes));
  return ranks->Wait(&transfer);
}

absl::Status Receive(Communicator* ranks, int from, int tag, void* data, size_t bytes) {
  PLUMB_ASSIGN_OR_RETURN(Communicator::Transfer transfer,
                         ranks->StartReceive(from, tag, data, bytes));
  return ranks->Wait(&transfer);
}

absl::Status SendText(Communicator* ranks, int to, int tag, absl::string_view text) {
  const uint64_t bytes = text.size();
  PLUMB_RETURN_IF_ERROR(Send(ranks, to, tag, &bytes, sizeof(bytes)));
  return Send(ranks, to, tag, text.data(), text.size());
}

absl::StatusOr<std::string> ReceiveText(Communicator* ranks, int from, int tag) {
  uint64_t bytes = 0;
  PLUMB_RETURN_IF_ERROR(Receive(ranks, from, tag, &bytes, sizeof(bytes)));
  std::string text(bytes, '\0');
  PLUMB_RETURN_IF_ERROR(Receive(ranks, from, tag, text.data(), bytes));
  return text;
}

absl::Status Broadcast(Communicator* ranks, int root, void* data, size_t bytes) {
  // A binomial tree over the ranks, counted from the root: in each round, every rank that has the
  // data sends it to the rank `reach` further.
  const int size = ranks->size();
  const int me = (ranks->rank() - root + size) % size;
  int reach = 1;
  while (reach <= me) reach *= 2;  // `me` receives from me - reach / 2
  if (me > 0) {
    PLUMB_RETURN_IF_ERROR(
        Receive(ranks, (me - reach / 2 + root) % size, kTagCollective, data, bytes));
  }
  for (; me + reach < size; reach *= 2) {
    PLUMB_RETURN_IF_ERROR(Send(ranks, (me + reach + root) % size, kTagCollective, data, bytes));
  }
  return absl::OkStatus();
}

absl::Status Broadcast(Communicator* ranks, int root, std::string* text) {
  uint64_t bytes = text->size();
  PLUMB_RETURN_IF_ERROR(Broadcast(ranks, root, &bytes, sizeof(bytes)));
  if (ranks->rank() != root) text->resize(bytes);
  return Broadcast(ranks, root, text->data(), bytes);
}

absl::StatusOr<std::vector<std::string>> Gather(Communicator* ranks, absl::string_view text) {
  std::vector<std::string> texts;
  if (ranks->rank() != 0) {
    PLUMB_RETURN_IF_ERROR(SendText(ranks, 0, kTagCollective, text));
    return texts;
  }
  texts.emplace_back(text);
  for (int rank = 1; rank < ranks->size(); ++rank) {
    PLUMB_ASSIGN_OR_RETURN(std::string each, ReceiveText(ranks, rank, kTagCollective));
    texts.push_back(std::move(each));
  }
  return texts;
}

absl::StatusOr<std::vector<std::string>> AllGather(Communicator* ranks, absl::string_view text) {
  PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> texts, Gather(ranks, text));
  std::string all = JoinTexts(texts);
  PLUMB_RETURN_IF_ERROR(Broadcast(ranks, 0, &all));
  return SplitTexts(all);
}

absl::StatusOr<std::vector<double>> AllGather(Communicator* ranks,
                                              absl::Span<const double> values) {
  const absl::string_view mine(reinterpret_cast<const char*>(values.data()),
                               values.size() * sizeof(double));
  PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> texts, AllGather(ranks, mine));
  std::vector<double> all;
  for (const std::string& each : texts) {
    const size_t before = all.size();
    all.resize(before + each.size() / sizeof(double));
    if (!each.empty()) std::memcpy(all.data() + before, each.data(), each.size());
  }
  return all;
}

absl::Status AllOk(Communicator* ranks, const absl::Status& status) {
  // Code, host and message; the empty text if the status is OK.
  std::string mine;
  if (!status.ok()) {
    mine =
        JoinTexts({absl::StrCat(status.raw_code()), ranks->host(), std::string(status.message())});
  }
  PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> all, AllGather(ranks, mine));
  for (int rank = 0; rank < ranks->size(); ++rank) {
    if (all[rank].empty()) continue;
    const std::vector<std::string> parts = SplitTexts(all[rank]);
    const absl::StatusCode code = static_cast<absl::StatusCode>(std::atoi(parts[0].c_str()));
    if (ranks->size() == 1) return absl::Status(code, parts[2]);
    return absl::Status(code, absl::StrCat("rank ", rank, " on host ", parts[1], ": ", parts[2]));
  }
  return absl::OkStatus();
}

absl::Status AllAgree(Communicator* ranks, absl::Span<const Fact> facts) {
  std::vector<std::string> mine = {ranks->host()};
  for (const Fact& fact : facts) mine.push_back(fact.second);
  PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> all, AllGather(ranks, JoinTexts(mine)));
  std::vector<std::string> hosts;
  std::vector<std::vector<std::string>> values;
  for (const std::string& each : all) {
    std::vector<std::string> texts = SplitTexts(each);
    PLUMB_CHECK(texts.size() == facts.size() + 1, "all ranks name the same facts");
    hosts.push_back(texts.front());
    values.emplace_back(texts.begin() + 1, texts.end());
  }
  for (size_t fact = 0; fact < facts.size(); ++fact) {
    std::vector<std::pair<std::string, std::vector<int>>> who;  // ranks per value, rank 0's first
    for (int rank = 0; rank < ranks->size(); ++rank) {
      size_t at = 0;
      while (at < who.size() && who[at].first != values[rank][fact]) ++at;
      if (at == who.size()) who.push_back({values[rank][fact], {}});
      who[at].second.push_back(rank);
    }
    if (who.size() == 1) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "the ", facts[fact].first, " differs between ranks: ",
        absl::StrJoin(who, "; ", [&hosts](std::string* out, const auto& each) {
          absl::StrAppend(out, ValueText(each.first), " on ", RanksOnHosts(each.second, hosts));
        })));
  }
  return absl::OkStatus();
}

int64_t ChooseUnits(int64_t batch_size, int64_t micro_batches, int ranks) {
  if (micro_batches >= ranks) return micro_batches;
  int64_t best = 0, fewest = 0;
  for (int64_t parts = 2; parts <= batch_size; ++parts) {
    const int64_t units = micro_batches * parts;
    if (batch_size % parts != 0 || units < ranks) continue;
    const int64_t busiest = CeilDiv(units, ranks) * (batch_size / parts);
    if (best == 0 || busiest < fewest) {
      best = units;
      fewest = busiest;
    }
  }
  return best;
}

}  // namespace plumb
