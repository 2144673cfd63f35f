package dejamq.testcontainers;

import com.github.dockerjava.api.command.InspectContainerResponse;
import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.wait.strategy.Wait;
import org.testcontainers.utility.DockerImageName;

/**
 * A name server and a broker at one address, ready when {@code start} returns. Clients are told the mapped port.
 *
 * <pre>{@code
 * try (DejamqContainer mq = new DejamqContainer()) {
 *     mq.start();
 *     producer.setNamesrvAddr(mq.getNamesrv());
 *     mq.answerLost("send", 1);
 * }
 * }</pre>
 */
public class DejamqContainer extends GenericContainer<DejamqContainer> {
    public static final int PORT = 9876;
    public static final int CONTROL_PORT = 9877;
    private static final Duration PATIENCE = Duration.ofSeconds(120);

    private final HttpClient http =
            HttpClient.newBuilder().connectTimeout(PATIENCE).version(HttpClient.Version.HTTP_1_1).build();

    public DejamqContainer() {
        this("dejamq:local");
    }

    public DejamqContainer(String image) {
        super(DockerImageName.parse(image));
        withExposedPorts(PORT, CONTROL_PORT);
        withCommand("dev", "--listen=0.0.0.0:" + PORT, "--control=0.0.0.0:" + CONTROL_PORT);
        waitingFor(Wait.forHttp("/health").forPort(CONTROL_PORT).withStartupTimeout(PATIENCE));
    }

    /** A published port is known only when the container runs. */
    @Override
    protected void containerIsStarted(InspectContainerResponse info, boolean reused) {
        ask("POST", "/advertise", "{\"address\": \"" + getNamesrv() + "\"}");
    }

    /** For clients of the remoting protocol: {@code setNamesrvAddr}, NAMESRV_ADDR. */
    public String getNamesrv() {
        return getHost() + ":" + getMappedPort(PORT);
    }

    /** For clients of protocol v2: {@code ClientConfiguration.setEndpoints}. */
    public String getEndpoints() {
        return getNamesrv();
    }

    /** The work of the next calls is done, and their answers are lost. Operations: send, receive, ack, commit, ... */
    public void answerLost(String operation, int count) {
        ask("POST", "/faults", call("answer_lost", operation, count));
    }

    /** The next calls never arrive. */
    public void requestLost(String operation, int count) {
        ask("POST", "/faults", call("request_lost", operation, count));
    }

    /** Nobody reaches the server, until {@link #heal}. */
    public void cut() {
        strike("cut");
    }

    public void heal() {
        strike("heal");
    }

    /** SIGSTOP, until {@link #resume}. */
    public void pause() {
        strike("pause");
    }

    public void resume() {
        strike("resume");
    }

    /** SIGKILL; what was stored stays. */
    public void killServer() {
        strike("kill");
    }

    /** Returns when the server serves again. */
    public void restartServer() {
        strike("restart");
    }

    /** Ends all faults. */
    public void clearFaults() {
        ask("DELETE", "/faults", "");
    }

    /** What the broker handed to the group again without being asked, with the cause where its journal proves it. JSON. */
    public String duplicates(String group) {
        return ask("GET", "/duplicates?group=" + URLEncoder.encode(group, StandardCharsets.UTF_8), "");
    }

    /** Any request of the control API; its answer. Throws IllegalStateException with what is wrong and what to do. */
    public String ask(String method, String path, String body) {
        URI uri = URI.create("http://" + getHost() + ":" + getMappedPort(CONTROL_PORT) + path);
        HttpRequest request = HttpRequest.newBuilder(uri)
                .timeout(PATIENCE)
                .method(method, body.isEmpty() ? BodyPublishers.noBody() : BodyPublishers.ofString(body))
                .build();
        try {
            var answer = http.send(request, BodyHandlers.ofString());
            if (answer.statusCode() != 200) {
                throw new IllegalStateException(answer.body());
            }
            return answer.body();
        } catch (IOException error) {
            throw new IllegalStateException("dejamq does not answer at " + uri, error);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("interrupted", error);
        }
    }

    private void strike(String fault) {
        ask("POST", "/faults", "{\"fault\": \"" + fault + "\"}");
    }

    private static String call(String fault, String operation, int count) {
        return "{\"fault\": \"" + fault + "\", \"operation\": \"" + operation + "\", \"count\": " + count + "}";
    }
}
