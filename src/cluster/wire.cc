#include "cluster/wire.h"

#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/check.h"

namespace hocket {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr size_t kLengthBytes = 4;
constexpr uint32_t kMagic = 0x43544b48;  // "HKTC": distinguishes another service's bytes from ours

// One description of each message serves both directions: fields(io, message) with a Writer or a
// Reader.
class Writer {
 public:
  static constexpr bool kReads = false;
  explicit Writer(std::string& out) : out_(out) {}

  template <class T>
    requires std::is_arithmetic_v<T>
  void number(const T& value) {
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <class Length>
  void text(const std::string& value, size_t max_bytes) {
    HOCKET_CHECK(value.size() <= max_bytes);
    number(static_cast<Length>(value.size()));
    out_ += value;
  }
  void bytes(const std::array<uint8_t, 32>& value) {
    out_.append(reinterpret_cast<const char*>(value.data()), value.size());
  }
  void expect(bool ok, const char*) { HOCKET_CHECK(ok); }

 private:
  std::string& out_;
};

class Reader {
 public:
  static constexpr bool kReads = true;
  explicit Reader(std::string_view in) : in_(in) {}

  template <class T>
    requires std::is_arithmetic_v<T>
  void number(T& value) {
    if (!has(sizeof value)) return;
    in_.copy(reinterpret_cast<char*>(&value), sizeof value);
    in_.remove_prefix(sizeof value);
  }
  template <class Length>
  void text(std::string& value, size_t max_bytes) {
    Length length = 0;
    number(length);
    expect(length <= max_bytes, "a text is too long");
    if (!ok() || !has(length)) return;
    value = in_.substr(0, length);
    in_.remove_prefix(length);
  }
  void bytes(std::array<uint8_t, 32>& value) {
    if (!has(value.size())) return;
    in_.copy(reinterpret_cast<char*>(value.data()), value.size());
    in_.remove_prefix(value.size());
  }
  void expect(bool ok, const char* why) {
    if (!ok && why_ == nullptr) why_ = why;
  }

  bool ok() const { return why_ == nullptr; }
  const char* why() const { return why_; }
  bool at_end() const { return in_.empty(); }

 private:
  bool has(size_t num_bytes) {
    expect(in_.size() >= num_bytes, "it ends too early");
    return ok();
  }
  std::string_view in_;
  const char* why_ = nullptr;
};

// Reads or writes a bool or an enum as one byte with values up to `last`.
template <class Io, class T>
void small(Io& io, T& value, uint8_t last) {
  auto byte = static_cast<uint8_t>(value);
  io.number(byte);
  io.expect(byte <= last, "a field has a value that does not exist");
  if constexpr (Io::kReads) {
    if (byte <= last) value = static_cast<std::remove_const_t<T>>(byte);
  }
}

// Reads or writes a number from -1 to `most`. error: of one beyond.
template <class Io, class T>
void small_number(Io& io, T& value, int most, const char* error) {
  auto word = static_cast<int32_t>(value);
  io.number(word);
  io.expect(word >= -1 && word <= most, error);
  if constexpr (Io::kReads) value = word;
}

// Reads or writes a rank or a count of ranks, -1 included.
template <class Io, class T>
void rank(Io& io, T& value) {
  small_number(io, value, kMaxRanks, "a rank is out of range");
}

template <class Io, class T>
void replicas(Io& io, T& value) {
  small_number(io, value, kMaxReplicas, "a count of replicas is out of range");
}

// Reads or writes a bit for every rank that there may be.
template <class Io, class T>
void ranks(Io& io, T& value) {
  std::array<uint64_t, kMaxRanks / 64> words{};
  for (int rank = 0; rank < kMaxRanks; ++rank)
    if (value.has(rank)) words.at(static_cast<size_t>(rank / 64)) |= uint64_t{1} << rank % 64;
  for (uint64_t& word : words) io.number(word);
  if constexpr (Io::kReads) {
    for (int rank = 0; rank < kMaxRanks; ++rank)
      if ((words.at(static_cast<size_t>(rank / 64)) >> rank % 64 & 1) != 0) value.add(rank);
  }
}

template <class Io, class T>
void name(Io& io, T& value) {
  io.template text<uint16_t>(value, kMaxNameBytes);
}
// Reads or writes a sentence for people; the other side prints it.
template <class Io, class T>
void why(Io& io, T& value) {
  if constexpr (Io::kReads) {
    io.template text<uint16_t>(value, kMaxWhyBytes);
    io.expect(is_printable(value), "a sentence has control characters");
  } else {
    io.template text<uint16_t>(in_one_line(value), kMaxWhyBytes);
  }
}
template <class Io>
void magic(Io& io) {
  uint32_t word = kMagic;
  io.number(word);
  io.expect(word == kMagic, "it is not of this protocol");
}

// M is a message type, const if the message is written.
template <class M, class Plain>
concept Is = std::is_same_v<std::remove_const_t<M>, Plain>;

template <class Io, Is<Identity> M>
void fields(Io& io, M& m) {
  rank(io, m.rank);
  rank(io, m.num_ranks);
  rank(io, m.ranks_per_node);
  name(io, m.host);
  name(io, m.boot_id);
  name(io, m.version);
  name(io, m.model_hash);
  name(io, m.plans);
  name(io, m.arithmetic);
  name(io, m.disaggregation);
  name(io, m.address);
}

template <class Io, Is<Heartbeat> M>
void fields(Io& io, M& m) {
  io.number(m.step);
  io.number(m.stage);
  small(io, m.state, static_cast<uint8_t>(EngineState::waiting));
  io.number(m.expected_ms);
  io.number(m.loaded);
  io.number(m.to_load);
  name(io, m.terms);
  small(io, m.leaves, 1);
  replicas(io, m.max_replicas);
  ranks(io, m.unreachable);
}

template <class Io, Is<ClusterView> M>
void fields(Io& io, M& m) {
  io.number(m.epoch);
  io.expect(m.epoch <= kMaxEpoch, "an epoch is out of range");
  small(io, m.over, 1);
  rank(io, m.coordinator);
  rank(io, m.lost);
  why(io, m.why);
  rank(io, m.tolerate_ranks);
  io.expect(m.tolerate_ranks >= 0, "a count of ranks is out of range");
  small(io, m.began, 1);
  auto count = static_cast<uint16_t>(m.members.size());
  io.number(count);
  io.expect(count <= kMaxRanks, "there are too many members");
  if constexpr (Io::kReads) {
    if (!io.ok()) return;
    m.members.resize(count);
  }
  for (auto& member : m.members) {
    small(io, member.state, static_cast<uint8_t>(MemberState::member));
    fields(io, member.identity);
    small(io, member.leaves, 1);
  }
  replicas(io, m.replicas);
}

template <class Io, Is<HelloMessage> M>
void fields(Io& io, M& m) {
  magic(io);
  small(io, m.needs_token, 1);
  small(io, m.tls, 1);
  io.bytes(m.nonce);
}
template <class Io, Is<ProofMessage> M>
void fields(Io& io, M& m) {
  magic(io);
  io.bytes(m.nonce);
  io.bytes(m.proof);
}
template <class Io, Is<WelcomeMessage> M>
void fields(Io& io, M& m) {
  io.bytes(m.proof);
}
template <class Io, Is<JoinMessage> M>
void fields(Io& io, M& m) {
  fields(io, m.identity);
  io.number(m.last_epoch);
  io.expect(m.last_epoch <= kMaxEpoch, "an epoch is out of range");
  small(io, m.resumes, 1);
  small(io, m.began, 1);
  fields(io, m.heartbeat);
  replicas(io, m.replicas);
}
template <class Io, Is<RefusedMessage> M>
void fields(Io& io, M& m) {
  small(io, m.may_retry, 1);
  io.number(m.code);
  why(io, m.text);
  why(io, m.fix);
}
template <class Io, Is<ViewMessage> M>
void fields(Io& io, M& m) {
  fields(io, m.view);
}
template <class Io, Is<HeartbeatMessage> M>
void fields(Io& io, M& m) {
  fields(io, m.heartbeat);
}
template <class Io, Is<LeaveMessage> M>
void fields(Io& io, M& m) {
  why(io, m.why);
}
template <class Io, Is<ReportMessage> M>
void fields(Io& io, M& m) {
  io.number(m.epoch);
  rank(io, m.rank);
  why(io, m.why);
}
template <class Io, Is<StoreRequest> M>
void fields(Io& io, M& m) {
  io.number(m.id);
  small(io, m.op, static_cast<uint8_t>(StoreOp::erase));
  io.template text<uint16_t>(m.key, kMaxStoreKeyBytes);
  io.template text<uint32_t>(m.value, kMaxStoreValueBytes);
  io.number(m.number);
}
template <class Io, Is<StoreReply> M>
void fields(Io& io, M& m) {
  io.number(m.id);
  io.number(m.code);
  io.template text<uint32_t>(m.value, kMaxStoreValueBytes);
  io.number(m.number);
}

template <size_t I = 0>
Result<Message> parse_as(uint8_t type, Reader& in) {
  if constexpr (I == std::variant_size_v<Message>) {
    return fail(ErrorCode::bad_value, "a message of the cluster has the unknown type {}", type);
  } else {
    if (type != I + 1) return parse_as<I + 1>(type, in);
    Message message(std::in_place_index<I>);
    fields(in, std::get<I>(message));
    in.expect(!in.ok() || in.at_end(), "it has bytes behind its end");
    if (!in.ok())
      return fail(ErrorCode::bad_value, "a message of the cluster (type {}) is damaged: {}", type,
                  in.why());
    return message;
  }
}

}  // namespace

void append_frame(std::string& out, const Message& message) {
  const size_t start = out.size();
  out.append(kLengthBytes, '\0');
  Writer writer(out);
  writer.number(kClusterProtocol);
  writer.number(static_cast<uint8_t>(message.index() + 1));
  std::visit([&](const auto& m) { fields(writer, m); }, message);
  const size_t length = out.size() - start - kLengthBytes;
  HOCKET_CHECK(length <= kMaxFrameBytes);
  const auto word = static_cast<uint32_t>(length);
  std::memcpy(out.data() + start, &word, sizeof word);
}

Result<Message> parse_frame(std::string_view frame) {
  uint8_t version = 0, type = 0;
  Reader in(frame);
  in.number(version);
  in.number(type);
  if (!in.ok()) return fail(ErrorCode::bad_value, "a message of the cluster is empty");
  if (version != kClusterProtocol)
    return fail(error(ErrorCode::lost_rank,
                      "the peer speaks version {} of the cluster's protocol, this process {}",
                      version, kClusterProtocol)
                    .with_fix("run the same version of hocket on all ranks"));
  return parse_as(type, in);
}

Result<std::optional<size_t>> frame_length(std::string_view bytes, size_t max_bytes) {
  if (bytes.size() < kLengthBytes) return std::nullopt;
  uint32_t length = 0;
  bytes.copy(reinterpret_cast<char*>(&length), sizeof length);
  if (length < 2 || length > max_bytes)
    return fail(ErrorCode::bad_value,
                "a message between ranks has the length {}, must be 2 to {} bytes", length,
                max_bytes);
  return length;
}

}  // namespace hocket
