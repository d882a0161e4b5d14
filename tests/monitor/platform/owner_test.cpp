// Users and containers: which text names a container, and who may change what.
#include "monitor/platform/owner.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "monitor/platform/processes.h"

namespace switchyard::monitor {
namespace {

const std::string kOne(64, 'a');
const std::string kTwo(64, '0');

TEST(Owner, AContainerIsNamedByItsCgroup) {
  const std::string docker = "/system.slice/docker-" + kOne + ".scope";
  EXPECT_EQ(container_cgroup("0::" + docker + "\n"), docker);
  EXPECT_EQ(container_cgroup("0::" + docker), docker);
  const std::string pod =
      "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podf00d.slice";
  EXPECT_EQ(container_cgroup("0::" + pod + "/cri-containerd-" + kOne + ".scope/below"),
            pod + "/cri-containerd-" + kOne + ".scope");
  // Version 1, and both at once.
  EXPECT_EQ(container_cgroup("12:cpuset:/\n5:memory:/docker/" + kOne + "\n0::/\n"),
            "/docker/" + kOne);
}

TEST(Owner, TheOutermostContainerCounts) {
  const std::string outer = "/docker/" + kOne;
  EXPECT_EQ(container_cgroup("0::" + outer + "/docker/" + kTwo), outer)
      << "what is below may have been named by the container itself";
  EXPECT_EQ(container_cgroup("0::" + outer + "/" + kOne), outer);
}

TEST(Owner, OtherCgroupsAreNoContainers) {
  for (const char* text : {"", "\n", "0::/", "0::/user.slice/user-1000.slice/session-2.scope\n",
                           ":", "0:", "::", "0::/docker/abc", "garbage\n\n0::/init.scope"}) {
    EXPECT_EQ(container_cgroup(text), "") << text;
  }
  EXPECT_EQ(container_cgroup("0::/" + std::string(63, 'a') + "-a"), "");
}

TEST(Owner, RootInTwoContainersIsTwoUsers) {
  const Owner root{0}, one{0, "one"}, two{0, "two"}, user{1000}, boxed{1000, "one"};
  EXPECT_TRUE(root.is_root());
  EXPECT_FALSE(one.is_root());
  for (const Owner& owner : {root, one, two, user, boxed}) {
    EXPECT_TRUE(may_change(owner, root));
    EXPECT_TRUE(may_change(owner, owner));
  }
  EXPECT_FALSE(may_change(one, two));
  EXPECT_FALSE(may_change(root, one));
  EXPECT_FALSE(may_change(user, one));
  EXPECT_FALSE(may_change(boxed, one)) << "another user in the same container";
  EXPECT_FALSE(may_change(user, boxed)) << "from inside";
  EXPECT_TRUE(may_change(boxed, user)) << "from outside";
  EXPECT_FALSE(may_change(boxed, Owner(1001)));
}

TEST(Owner, RootHasAnAccountInEachContainerAndAUserHasOneInAll) {
  const std::string spaces = "pid:[1]user:[2]";
  const std::string one = "/docker/" + kOne, two = "/docker/" + kTwo;
  EXPECT_EQ(account_of(Owner{0}), 0u);
  EXPECT_EQ(account_of(Owner{1000}), 1000u);
  EXPECT_EQ(account_of({1000, spaces + one}), 1000u) << "a user makes any number of namespaces";
  const uid_t root = account_of({0, spaces + one});
  EXPECT_NE(root, account_of({0, spaces + two}));
  EXPECT_EQ(root, account_of({0, one}));
  EXPECT_EQ(root, account_of({0, "pid:[3]user:[2]" + one})) << "namespaces that root made within";
  EXPECT_EQ(account_of({0, spaces}), account_of({0, "unknown 4711"})) << "no cgroup names it";
  for (const uid_t account : {root, account_of({0, spaces})}) {
    EXPECT_GE(account, 1u << 31) << "no user's";
    EXPECT_LT(account, static_cast<uid_t>(-2));
  }
}

TEST(Owner, APeerInOurNamespacesIsInNoOtherContainer) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  EXPECT_EQ(container_of_peer(ends[0], ::getpid()), container_id(::getpid()));
  EXPECT_EQ(container_id(0), "unknown 0");
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace switchyard::monitor
