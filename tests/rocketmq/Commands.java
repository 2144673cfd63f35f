// Commands of RocketMQ's mqadmin, one after the other in one process. Arguments: the name server, then the commands, each
// one argument whose words stand between blanks. Before each one its words are printed.
//
// A command that mqadmin lacks is a call of its library: api.getConsumeStatus TOPIC GROUP,
// api.resumeCheckHalfMessage TOPIC ID. Of an error its code is printed, as the servers' texts differ.

import java.util.Map;
import java.util.TreeMap;

import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

public class Commands {
    public static void main(String[] args) {
        Thread.currentThread().setUncaughtExceptionHandler((thread, error) -> {  // other threads would live on
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        });
        for (int at = 1; at < args.length; at++) {
            System.out.println("\n== " + args[at]);
            if (args[at].startsWith("api.")) {
                call(args[0], args[at].split(" "));
            } else {
                MQAdminStartup.main0((args[at] + " -n " + args[0]).split(" "), null);
            }
        }
        System.out.println("\n== end");
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static void call(String namesrv, String[] words) {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(20_000);
        admin.setNamesrvAddr(namesrv);
        admin.setInstanceName(Long.toString(System.nanoTime()));
        try {
            admin.start();
            if (words[0].equals("api.getConsumeStatus")) {
                Map<String, Map<MessageQueue, Long>> found = admin.getConsumeStatus(words[1], words[2], null);
                for (Map.Entry<String, Map<MessageQueue, Long>> each : new TreeMap<>(found).entrySet()) {
                    System.out.println(each.getKey() + " " + new TreeMap<>(each.getValue()));
                }
            } else {
                System.out.println(admin.resumeCheckHalfMessage(words[1], words[2]));
            }
        } catch (MQClientException error) {
            System.out.println(error.getResponseCode() == ResponseCode.SYSTEM_ERROR ? "SYSTEM_ERROR" : error.toString());
        } catch (Exception error) {
            System.out.println(error);
        } finally {
            admin.shutdown();
        }
    }
}
