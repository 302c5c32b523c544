#include "app/doctor_command.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/json/parse.hpp>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "tests/models/tiny_model.h"

namespace renga {
namespace {

using testing::HasSubstr;

class DoctorCommandTest : public testing::Test {
 protected:
  void SetUp() override {
    Config& config = loaded_.config;
    for (std::string* address : {&config.grpc.address, &config.gateway.address,
                                 &config.admin.address, &config.admin.grpc_address}) {
      *address = "127.0.0.1:0";
    }
    config.device.threads = 1;
    config.kv.pool_bytes = 16 << 20;
  }
  void TearDown() override { std::remove(path_.c_str()); }

  void UseModel() {
    ASSERT_TRUE(test::WriteTinyModel({.type = test::TinyType::kQ4_1}, path_));
    loaded_.config.model.path = path_;
  }
  // The report; its exit code agrees with it.
  boost::json::value Run(int code, bool quick = true) {
    std::ostringstream out;
    EXPECT_EQ(RunDoctor(loaded_, {.json = true, .quick = quick}, out), code) << out.str();
    const boost::json::value report = boost::json::parse(out.str());
    EXPECT_EQ(report.at("ok").as_bool(), code == 0);
    return report;
  }
  static std::string VerdictOf(const boost::json::value& report, const char* name) {
    for (const boost::json::value& finding : report.at("findings").as_array()) {
      if (finding.at("name") == name) return finding.at("verdict").as_string().c_str();
    }
    return "nothing found";
  }

  LoadedConfig loaded_;
  const std::string path_ =
      testing::TempDir() + "renga_doctor_test_" + std::to_string(getpid());
};

TEST_F(DoctorCommandTest, WithoutAModelItLooksAtTheMachine) {
  const boost::json::value report = Run(0, false);
  EXPECT_TRUE(report.at("model").is_null());
  EXPECT_EQ(VerdictOf(report, "model.path"), "warning");
  EXPECT_GT(report.at("machine").at("read_bytes_per_second").to_number<double>(), 0.0);
  EXPECT_GT(report.at("machine").at("macs_per_second").to_number<double>(), 0.0);
}

TEST_F(DoctorCommandTest, AModelGetsItsPrediction) {
  UseModel();
  const boost::json::value report = Run(0, false);
  EXPECT_EQ(VerdictOf(report, "model.path"), "ok");
  const boost::json::value& model = report.at("model");
  EXPECT_GT(model.at("weight_bytes").as_int64(), 0);
  EXPECT_GT(model.at("prompt_macs_per_token").as_int64(), 0);
  EXPECT_GT(model.at("predicted_decode_tokens_per_second").to_number<double>(), 0.0);
  EXPECT_GT(model.at("predicted_prefill_tokens_per_second").to_number<double>(), 0.0);
}

TEST_F(DoctorCommandTest, TheTextSaysTheSameToAPerson) {
  UseModel();
  std::ostringstream out;
  EXPECT_EQ(RunDoctor(loaded_, {.quick = true}, out), 0);
  EXPECT_THAT(out.str(), HasSubstr("tiny (llama)"));
  EXPECT_THAT(out.str(), HasSubstr("ok      model.path"));
}

TEST_F(DoctorCommandTest, AFileThatIsNoModelIsAProblem) {
  std::ofstream(path_) << "no model";
  loaded_.config.model.path = path_;
  EXPECT_EQ(VerdictOf(Run(1), "model.path"), "problem");
  loaded_.config.model.path = "/no/such/file.gguf";
  EXPECT_EQ(VerdictOf(Run(1), "model.path"), "problem");
}

TEST_F(DoctorCommandTest, APortInUseIsAProblem) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  socklen_t size = sizeof address;
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  loaded_.config.admin.address = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  EXPECT_EQ(VerdictOf(Run(1), "admin.address"), "problem");
  close(listener);
}

TEST_F(DoctorCommandTest, OneAddressForTwoIsAProblemAndAnOpenOneAWarning) {
  loaded_.config.grpc.address = "127.0.0.1:50999";
  loaded_.config.gateway.address = "127.0.0.1:50999";
  loaded_.config.admin.address = "0.0.0.0:0";
  const boost::json::value report = Run(1);
  EXPECT_EQ(VerdictOf(report, "gateway.address"), "problem");
}

TEST_F(DoctorCommandTest, AKeysFileThatCannotBeReadIsAProblem) {
  loaded_.config.auth.keys_file = "/no/such/keys";
  EXPECT_EQ(VerdictOf(Run(1), "auth.keys_file"), "problem");
}

TEST_F(DoctorCommandTest, AnInstructionSetThatIsNotThereIsAProblem) {
  loaded_.config.device.isa = "none";
  EXPECT_EQ(VerdictOf(Run(1), "device.isa"), "problem");
}

TEST_F(DoctorCommandTest, PagesThatTheDeviceHasNotAreAProblem) {
  UseModel();
  loaded_.config.device.name = "cpu";
  loaded_.config.kv.dtype = "bf16";
  EXPECT_EQ(VerdictOf(Run(1), "kv.dtype"), "problem");
}

TEST_F(DoctorCommandTest, WarningsOfTheSettingsAreTold) {
  loaded_.warnings = {"RENGA_X in the environment is not a setting"};
  EXPECT_EQ(VerdictOf(Run(0), "settings"), "warning");
}

}  // namespace
}  // namespace renga
