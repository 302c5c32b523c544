#include "transport/wire.h"

#include <gmock/gmock.h>
#include <google/protobuf/unknown_field_set.h>
#include <grpcpp/support/slice.h>

#include <random>

#include "renga/v1/inference.pb.h"

namespace renga {
namespace {

using testing::StartsWith;

class WireTest : public testing::Test {
 protected:
  void SetUp() override { CaptureProtobufErrors(); }
  static grpc::ByteBuffer Bytes(const std::string& bytes) {
    grpc::Slice slice(bytes);
    return grpc::ByteBuffer(&slice, 1);
  }
};

TEST_F(WireTest, DecodeInvertsEncode) {
  v1::GenerateRequest message;
  message.set_text(std::string("a\0é", 4));
  message.add_stop_token_ids(-1);
  v1::GenerateRequest back;
  ASSERT_TRUE(Decode(Encode(message), back).ok());
  EXPECT_EQ(back.SerializeAsString(), message.SerializeAsString());
}

TEST_F(WireTest, NoBytesAreAnEmptyMessage) {
  v1::GenerateRequest message;
  EXPECT_TRUE(Decode(Bytes(""), message).ok());
  EXPECT_TRUE(Decode(Encode(message), message).ok());
}

TEST_F(WireTest, AnUnknownFieldIsNamedWithItsPlace) {
  v1::GenerateRequest message;
  message.mutable_chat()->add_messages();
  auto* inner = message.mutable_chat()->add_messages();
  inner->GetReflection()->MutableUnknownFields(inner)->AddVarint(77, 1);
  v1::GenerateRequest back;
  const Status status = Decode(Encode(message), back);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.field(), "chat.messages[1]");
  EXPECT_THAT(status.message(), StartsWith("unknown field 77 of renga.v1.ChatMessage"));
}

TEST_F(WireTest, TextThatIsNotUtf8IsNamedByField) {
  v1::GenerateRequest message;
  // stop = "\xc0"
  Status status = Decode(Bytes("\x3a\x01\xc0"), message);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.field(), "stop");
  // chat.messages[0].content = "\xed\xa0\x80", a lone surrogate
  status = Decode(Bytes("\x22\x07\x0a\x05\x12\x03\xed\xa0\x80"), message);
  EXPECT_EQ(status.field(), "ChatMessage.content");
}

TEST_F(WireTest, BytesThatAreNoMessageAreRefusedWithoutAField) {
  v1::GenerateRequest message;
  for (const char* bytes : {"\x12\x05"
                            "ab",
                            "\xff\xff\xff", "\x0b", "\x12\xff\xff\xff\xff\x0f"}) {
    const Status status = Decode(Bytes(bytes), message);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), "the request is not a renga.v1.GenerateRequest");
  }
}

TEST_F(WireTest, ABrokenMessageNeverPassesForTheOneBefore) {
  v1::GenerateRequest message;
  EXPECT_FALSE(Decode(Bytes("\x3a\x01\xc0"), message).ok());
  const Status status = Decode(Bytes("\xff"), message);
  EXPECT_EQ(status.field(), "");
}

TEST_F(WireTest, RandomBytesAreDecodedOrRefused) {
  std::mt19937 random(7);
  v1::GenerateRequest valid;
  valid.mutable_chat()->add_messages()->set_content("hello");
  valid.mutable_sampling()->set_top_p(0.5f);
  valid.add_stop(std::string("x"));
  const std::string good = valid.SerializeAsString();
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = good;
    for (int flips = 0; flips < 3; ++flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    v1::GenerateRequest message;
    const Status status = Decode(Bytes(bytes), message);
    if (!status.ok()) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    }
  }
}

}  // namespace
}  // namespace renga
